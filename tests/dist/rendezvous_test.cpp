#include "prism/dist/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace prism::dist {
namespace {

using Seconds = Communicator::Seconds;

// A port of this machine at which nobody listens.
uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(socket);
  return ntohs(address.sin_port);
}

// Returns the error of a process that cannot meet the others; "" if it meets them.
std::string fault_of(const Rendezvous& place, Seconds timeout) {
  try {
    meet(place, timeout);
  } catch (const PeerError& error) {
    return std::string("peer: ") + error.what();
  } catch (const Error& error) {
    return std::string("mistake: ") + error.what();
  }
  return "";
}

// The same of several processes, which are threads here. The first keeps the store.
std::vector<std::string> faults_of(std::vector<Rendezvous> places, Seconds timeout) {
  std::vector<std::string> faults(places.size());
  std::vector<std::thread> threads;
  const uint16_t port = free_port();
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].host = "127.0.0.1";
    places[i].port = port;
    places[i].is_server = i == 0;
    threads.emplace_back([&, i] {
      try {
        const Store store = meet(places[i], timeout);
        store->add("left", 1);
        while (i == 0 && store->add("left", 0) < static_cast<int64_t>(places.size()))  // the server goes last
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      } catch (const std::exception& error) {
        faults[i] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return faults;
}

TEST(Rendezvous, ProcessesMeet) {
  const auto faults = faults_of({{.rank = 0, .size = 3}, {.rank = 2, .size = 3}, {.rank = 1, .size = 3}}, Seconds(30));
  EXPECT_EQ(faults[0] + faults[1] + faults[2], "");
}

TEST(Rendezvous, AnAddressWhereNobodyListensIsAnErrorInTime) {
  for (const char* host : {"127.0.0.1", "192.0.2.1", "nowhere.invalid"}) {
    const uint16_t port = free_port();
    const auto begin = std::chrono::steady_clock::now();
    const auto fault = fault_of({.host = host, .port = port, .rank = 1, .size = 2}, Seconds(1));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << host;
    EXPECT_TRUE(fault.starts_with("peer: cannot reach the other processes at " + std::string(host) + ":" +
                                  std::to_string(port) + " (MASTER_ADDR:MASTER_PORT) within 1 s: "))
        << fault;
  }
}

TEST(Rendezvous, AMissingProcessIsNamedInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const auto faults = faults_of({{.rank = 0, .size = 3}, {.rank = 1, .size = 3}}, Seconds(1));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_TRUE(faults[0].starts_with("process 2 of 3 did not come to 127.0.0.1:")) << faults[0];
  EXPECT_NE(faults[1], "");
}

TEST(Rendezvous, DifferentNumbersOfProcessesAreRefusedAtOnce) {
  const auto faults = faults_of({{.rank = 0, .size = 2}, {.rank = 1, .size = 3}}, Seconds(600));
  EXPECT_EQ(faults[0], "WORLD_SIZE: expected the same number in all processes, got 2 in process 0 and 3 in process 1");
}

TEST(Rendezvous, TwoProcessesWithOneRankAreRefused) {
  const auto faults = faults_of({{.rank = 0, .size = 2}, {.rank = 0, .size = 2}}, Seconds(2));
  const std::string twice = "RANK: expected another number for each process, got 0 twice";
  EXPECT_TRUE(faults[0] == twice || faults[1] == twice) << faults[0] << "; " << faults[1];
}

}  // namespace
}  // namespace prism::dist
