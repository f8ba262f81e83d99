// SPDX-License-Identifier: Apache-2.0
// The main program of every test program. One that takes as long as it may says which of its tests it is in, before it
// is ended from outside and can say nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t kLongest = 512;
char message[kLongest];
std::atomic<std::size_t> length{0};

class Watch final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    length = 0;
    const int bytes = std::snprintf(message, sizeof message, "still in %s.%s\n", test.test_suite_name(), test.name());
    if (bytes > 0) length = std::min(static_cast<std::size_t>(bytes), sizeof message - 1);
  }
  void OnTestEnd(const ::testing::TestInfo&) override { length = 0; }
};

void say_where(int) {
  if (::write(STDERR_FILENO, message, length) < 0) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new Watch);  // which owns it
  struct sigaction action = {};
  action.sa_handler = say_where;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  ::alarm(VERBENA_TEST_TIMEOUT - 20);
  return RUN_ALL_TESTS();
}
