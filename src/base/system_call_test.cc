// SPDX-License-Identifier: Apache-2.0
#include "base/system_call.h"

#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/sanitizer.h"

namespace verbena {
namespace {

class SystemCall : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends_), 0); }
  void TearDown() override {
    for (const int end : ends_) ::close(end);
  }
  int ends_[2] = {-1, -1};
};

TEST_F(SystemCall, passes_what_it_is_given) {
  const std::string_view said = "what leaves";
  EXPECT_EQ(system_call(SYS_sendto, ::sendto, ends_[0], said.data(), said.size(), MSG_DONTWAIT, nullptr, 0),
            static_cast<ssize_t>(said.size()));
  sockaddr_storage from;
  std::memset(&from, 0xff, sizeof from);
  socklen_t size = sizeof from;  // the sixth argument
  std::array<char, 32> bytes{};
  EXPECT_EQ(system_call(SYS_recvfrom, ::recvfrom, ends_[1], bytes.data(), bytes.size(), MSG_DONTWAIT,
                        reinterpret_cast<sockaddr*>(&from), &size),
            static_cast<ssize_t>(said.size()));
  EXPECT_EQ(bytes.data(), said);
  EXPECT_LT(size, sizeof from);
}

TEST_F(SystemCall, tells_errors_as_the_library_does) {
  std::array<char, 8> bytes;
  errno = 0;
  EXPECT_EQ(system_call(SYS_recvfrom, ::recvfrom, ends_[0], bytes.data(), bytes.size(), MSG_DONTWAIT, nullptr, nullptr),
            -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(system_call(SYS_recvfrom, ::recvfrom, -1, bytes.data(), bytes.size(), MSG_DONTWAIT, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EBADF);
  errno = 0;
  EXPECT_EQ(system_call(SYS_sendto, ::sendto, ends_[0], bytes.data(), bytes.size(), MSG_DONTWAIT, nullptr, 0), 8);
  EXPECT_EQ(errno, 0);
}

ssize_t none_of_the_library(int, void*, size_t, int, sockaddr*, socklen_t*) { return 0; }

TEST_F(SystemCall, goes_by_who_took_the_librarys_place) {
  EXPECT_FALSE(is_of_c_library(reinterpret_cast<const void*>(&none_of_the_library)));
  EXPECT_FALSE(is_of_c_library(nullptr));
  if (kSanitized) EXPECT_FALSE(calls_kernel_itself());
  else EXPECT_EQ(calls_kernel_itself(), is_of_c_library(reinterpret_cast<const void*>(&::recvfrom)));
}

#if defined(__x86_64__) && defined(__LP64__)

volatile sig_atomic_t steps = 0, found = 0;
const void* volatile caller = nullptr;

// Whether who unwinds from here finds the function that made the call.
void on_step(int, siginfo_t*, void* context) {
  const auto at = static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  const auto begin = reinterpret_cast<std::uintptr_t>(&verbena_call_kernel);
  if (at < begin || at > begin + 0x80) return;
  steps = steps + 1;
  std::array<void*, 32> frames;
  const auto count = static_cast<std::size_t>(::backtrace(frames.data(), frames.size()));
  if (std::find(frames.begin(), frames.begin() + count, caller) != frames.begin() + count) found = found + 1;
}

// The flag is the trap flag: a signal after each instruction.
[[gnu::noinline]] long step_through() {
  caller = __builtin_extract_return_addr(__builtin_return_address(0));
  asm volatile("pushfq\n\torq $0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
  const long answer = verbena_call_kernel(SYS_getppid, 0, 0, 0, 0, 0, 0);
  asm volatile("pushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq" ::: "memory", "cc");
  return answer;
}

class SystemCallSteps : public SystemCall, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(, SystemCallSteps, ::testing::Bool());

// Profilers and crash reports unwind from wherever a signal comes.
TEST_P(SystemCallSteps, can_be_unwound_from_each_instruction) {
  std::array<void*, 4> first;
  ::backtrace(first.data(), first.size());  // which loads what it needs
  struct sigaction mine {}, before {};
  mine.sa_sigaction = on_step;
  mine.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGTRAP, &mine, &before), 0);
  steps = 0;
  found = 0;
  const bool fills = std::exchange(verbena_fills_returns, GetParam());
  const long answer = step_through();
  verbena_fills_returns = fills;
  ::sigaction(SIGTRAP, &before, nullptr);
  EXPECT_EQ(answer, ::getppid());
  EXPECT_GT(steps, GetParam() ? 64 : 8);
  EXPECT_EQ(found, steps);
}

#endif

}  // namespace
}  // namespace verbena
