// Makes system calls of a program fail, or return a wrong time, from a chosen moment on. Load it with LD_PRELOAD.
//   PRISM_FAULT=KIND:N[:TIMES]   the N-th counted call and those after it; TIMES: only so many of them
//     full       a full disk: calls that need room fail with ENOSPC; the first write still writes half of its bytes
//     readonly   a file system that has become read-only: every change fails with EROFS
//     broken     a failing disk: write and fsync fail with EIO
//     clock      the time of day is two days earlier
//   PRISM_FAULT_FOLDER=PATH      the calls that count are those under this folder (not for clock)
//   PRISM_FAULT_COUNT=FILE       at the end the number of counted calls is written there
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

namespace {

enum class Kind { None, Full, Readonly, Broken, Clock };

// The effect of a call on the disk.
enum class Use { Data, Flush, Name, Remove };

struct Plan {
  Kind kind = Kind::None;
  int64_t first = INT64_MAX, times = INT64_MAX;
  std::string folder, count_file;

  Plan() {
    const char* fault = std::getenv("PRISM_FAULT");
    const std::string_view text = fault ? fault : "";
    if (text.starts_with("full")) kind = Kind::Full;
    if (text.starts_with("readonly")) kind = Kind::Readonly;
    if (text.starts_with("broken")) kind = Kind::Broken;
    if (text.starts_with("clock")) kind = Kind::Clock;
    if (const auto colon = text.find(':'); colon != std::string_view::npos) {
      char* end = nullptr;
      first = std::strtoll(text.data() + colon + 1, &end, 10);
      if (*end == ':') times = std::strtoll(end + 1, nullptr, 10);
    }
    if (const char* path = std::getenv("PRISM_FAULT_FOLDER")) folder = path;
    if (const char* path = std::getenv("PRISM_FAULT_COUNT")) count_file = path;
  }
};

const Plan& plan() {
  static const Plan* const made = new Plan;  // never destroyed: calls come until the very end
  return *made;
}

std::atomic<int64_t> counted{0};

bool is_due() {
  const int64_t number = ++counted;
  return number >= plan().first && number - plan().first < plan().times;
}

bool applies(Use use) {
  switch (plan().kind) {
    case Kind::Full:
      return use == Use::Data || use == Use::Name;
    case Kind::Readonly:
      return true;
    case Kind::Broken:
      return use == Use::Data || use == Use::Flush;
    default:
      return false;
  }
}

bool is_ours(std::string_view path) {
  return !plan().folder.empty() && path.starts_with(plan().folder) &&
         (path.size() == plan().folder.size() || path[plan().folder.size()] == '/');
}

std::string path_of(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

std::string path_at(int folder, const char* path) {
  if (path[0] == '/') return path;
  char here[PATH_MAX];
  if (folder != AT_FDCWD) return path_of(folder) + "/" + path;
  return ::getcwd(here, sizeof(here)) ? std::string(here) + "/" + path : path;
}

// Counts a call. Returns true and sets errno if the call is to fail.
bool fails(Use use, const std::string& path) {
  if (!is_ours(path) || plan().kind == Kind::Clock || !is_due() || !applies(use)) return false;
  errno = plan().kind == Kind::Full ? ENOSPC : plan().kind == Kind::Readonly ? EROFS : EIO;
  return true;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
#define NEXT(name) static const auto real = next<decltype(::name)>(#name)

bool changes(int flags) { return (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_ACCMODE) != O_RDONLY; }

ssize_t write_some(int fd, const void* bytes, size_t size) {
  NEXT(write);
  static std::atomic<bool> halved{false};
  if (!fails(Use::Data, path_of(fd))) return real(fd, bytes, size);
  return plan().kind == Kind::Full && size > 1 && !halved.exchange(true) ? real(fd, bytes, size / 2) : -1;
}

constexpr time_t kBack = time_t{2} * 24 * 3600;

bool clock_is_back() { return plan().kind == Kind::Clock && is_due(); }

struct Report {
  ~Report() {
    if (plan().count_file.empty()) return;
    if (FILE* file = std::fopen(plan().count_file.c_str(), "w")) {
      std::fprintf(file, "%lld\n", static_cast<long long>(counted));
      std::fclose(file);
    }
  }
} report;

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t size) { return write_some(fd, bytes, size); }

ssize_t writev(int fd, const iovec* parts, int count) {
  NEXT(writev);
  return fails(Use::Data, path_of(fd)) ? -1 : real(fd, parts, count);
}

int fsync(int fd) {
  NEXT(fsync);
  return fails(Use::Flush, path_of(fd)) ? -1 : real(fd);
}

int ftruncate(int fd, off_t size) noexcept {
  NEXT(ftruncate);
  return fails(Use::Remove, path_of(fd)) ? -1 : real(fd, size);
}

int truncate(const char* path, off_t size) noexcept {
  NEXT(truncate);
  return fails(Use::Remove, path_at(AT_FDCWD, path)) ? -1 : real(path, size);
}

#define OPEN(name)                                                              \
  int name(const char* path, int flags, ...) {                                  \
    NEXT(name);                                                                 \
    va_list arguments;                                                          \
    va_start(arguments, flags);                                                 \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments);                                                          \
    if (changes(flags) && fails(Use::Name, path_at(AT_FDCWD, path))) return -1; \
    return real(path, flags, mode);                                             \
  }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                             \
  FILE* name(const char* path, const char* mode) {                                                              \
    NEXT(name);                                                                                                 \
    return std::strpbrk(mode, "wa+") && fails(Use::Name, path_at(AT_FDCWD, path)) ? nullptr : real(path, mode); \
  }
FOPEN(fopen)
FOPEN(fopen64)

int mkdir(const char* path, mode_t mode) noexcept {
  NEXT(mkdir);
  return fails(Use::Name, path_at(AT_FDCWD, path)) ? -1 : real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  NEXT(rename);
  return fails(Use::Name, path_at(AT_FDCWD, to)) ? -1 : real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  NEXT(renameat2);
  return fails(Use::Name, path_at(to_folder, to)) ? -1 : real(from_folder, from, to_folder, to, flags);
}

int unlink(const char* path) noexcept {
  NEXT(unlink);
  return fails(Use::Remove, path_at(AT_FDCWD, path)) ? -1 : real(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  NEXT(unlinkat);
  return fails(Use::Remove, path_at(folder, path)) ? -1 : real(folder, path, flags);
}

int rmdir(const char* path) noexcept {
  NEXT(rmdir);
  return fails(Use::Remove, path_at(AT_FDCWD, path)) ? -1 : real(path);
}

int remove(const char* path) noexcept {
  NEXT(remove);
  return fails(Use::Remove, path_at(AT_FDCWD, path)) ? -1 : real(path);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  NEXT(clock_gettime);
  const int status = real(clock, time);
  if (clock == CLOCK_REALTIME && clock_is_back()) time->tv_sec -= kBack;
  return status;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  NEXT(gettimeofday);
  const int status = real(time, zone);
  if (clock_is_back()) time->tv_sec -= kBack;
  return status;
}

time_t time(time_t* out) noexcept {
  NEXT(time);
  const time_t now = real(nullptr) - (clock_is_back() ? kBack : 0);
  if (out != nullptr) *out = now;
  return now;
}

}  // extern "C"
