#include "prism/bench/peers.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "prism/io/error.h"
#include "prism/io/file.h"
#include "prism/io/json.h"
#include "prism/train/config.h"

namespace prism::bench {
namespace {

std::optional<double> number(const nlohmann::json& line, const char* key) {
  return line.contains(key) ? std::optional(line.at(key).get<double>()) : std::nullopt;
}

}  // namespace

Peers::Child::Child(const std::string& command) {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    io::throw_system_error("make a socket for", command, errno);
  process = ::fork();
  if (process == 0) {  // between fork and exec, make only async-signal-safe calls
    ::dup2(ends[1], STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  socket = ends[0];
  if (process < 0) io::throw_system_error("start", command, errno);
}

Peers::Child::~Child() {
  ::close(socket);
  while (process > 0 && ::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Peers::Peers(const std::string& command) : command_(command), child_(command) {
  const auto greeting = read();
  if (!greeting.contains("names"))
    throw Error(fmt::format("--peers: expected the names of optimizers first, got {}", io::quote(greeting.dump())));
  names_ = greeting.at("names");
}

nlohmann::json Peers::read() {
  std::array<char, 4096> buffer;
  size_t end = 0;
  while ((end = received_.find('\n')) == std::string::npos) {
    const ssize_t got = ::recv(child_.socket, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error(fmt::format("--peers: '{}' ended before it answered", command_));
    received_.append(buffer.data(), static_cast<size_t>(got));
  }
  const auto line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return io::parse_json(line, "--peers");
}

void Peers::write(const nlohmann::json& line) {
  const auto text = line.dump() + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(child_.socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(fmt::format("--peers: '{}' has ended", command_));
    sent += static_cast<size_t>(count);
  }
}

std::vector<nlohmann::json> Peers::ask(const nlohmann::json& job, const Missing& missing) {
  write(job);
  std::vector<nlohmann::json> answers;
  for (auto line = read(); !line.empty(); line = read()) {
    if (line.contains("missing")) {
      missing(line.at("name"), line.at("missing"));
    } else {
      answers.push_back(std::move(line));
    }
  }
  return answers;
}

std::vector<StepTime> Peers::measure(const ShapeSet& shapes, at::Device device, int64_t repeats,
                                     const std::vector<std::string>& only, const Missing& missing) {
  const nlohmann::json job = {{"kind", "optimizer"}, {"device", device.str()},      {"repeats", repeats},
                              {"only", only},        {"matrices", shapes.matrices}, {"rest", shapes.rest}};
  std::vector<StepTime> rows;
  for (const auto& line : ask(job, missing)) {
    const auto& taken = line.value("rest", false) ? shapes.rest : shapes.matrices;
    rows.push_back({.name = line.at("name"),
                    .ours = line.value("ours", false),
                    .eager_ms = line.at("eager_ms"),
                    .captured_ms = number(line, "captured_ms"),
                    .memory_mib = line.at("memory_mib"),
                    .work = step_work(*entrant(line.at("like")).make_options(), taken)});
  }
  return rows;
}

std::vector<TrainingTime> Peers::measure(const TrainingOptions& options, at::Device device, const Missing& missing) {
  const auto config = training_config(options, device);
  const auto model = train::model_config(config, options.vocab);
  const nlohmann::json job = {{"kind", "train"},
                              {"device", device.str()},
                              {"steps", options.steps},
                              {"layers", model.layers},
                              {"width", model.width},
                              {"heads", model.heads},
                              {"kv_heads", model.kv_heads},
                              {"mlp", model.mlp},
                              {"vocab", model.vocab},
                              {"batch", options.batch},
                              {"context", options.context},
                              {"clip", config.real("train.clip")}};
  std::vector<TrainingTime> rows;
  for (const auto& line : ask(job, missing)) {
    rows.push_back({.name = line.at("name"),
                    .step_ms = line.at("step_ms"),
                    .tokens = options.batch * options.context,
                    .peak_bytes = line.at("peak_bytes"),
                    .first_loss = line.at("first_loss"),
                    .last_loss = line.at("last_loss")});
  }
  return rows;
}

}  // namespace prism::bench
