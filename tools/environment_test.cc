// SPDX-License-Identifier: Apache-2.0
#include "tools/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "verbena/device/device.h"

namespace verbena::tools {
namespace {

using ::testing::HasSubstr;

TEST(Environment, what_is_wrong_with_a_value_is_what_opening_a_device_says_of_it) {
  struct {
    const char *name, *value;
    bool understood;
  } const kValues[] = {{"VERBENA_PATH", "local", true},        {"VERBENA_PATH", "fast", false},
                       {"VERBENA_LOCAL_COPY", "auto", true},   {"VERBENA_LOCAL_COPY", "staged", true},
                       {"VERBENA_LOCAL_COPY", "twice", false}, {"VERBENA_LOCAL_USERS", "7,8", true},
                       {"VERBENA_LOCAL_USERS", "7,", false},   {"VERBENA_LOCAL_USERS", "7 8", false},
                       {"VERBENA_ADDRESS_USERS", "0", true},   {"VERBENA_ADDRESS_USERS", "4294967296", false},
                       {"VERBENA_ADDRESS_USERS", "-1", false}, {"VERBENA_LOCAL_DIR", "fast", true},
                       {"VERBENA_PATH", "", true}};
  for (const auto& [name, value, understood] : kValues) {
    ASSERT_EQ(::setenv(name, value, 1), 0);
    OpenOptions nowhere;
    nowhere.device = "a name of no device";
    const auto opened = Device::open(nowhere);
    ASSERT_FALSE(opened);
    std::string wrong;
    for (const EnvironmentVariable& one : environment()) wrong += wrong_with(one);
    ::unsetenv(name);
    EXPECT_EQ(wrong.empty(), understood) << name << "=" << value;
    EXPECT_EQ(opened.error().code() == ErrorCode::InvalidArgument, !understood) << opened.error().to_string();
    EXPECT_THAT(opened.error().context(), HasSubstr(wrong));
  }
}

}  // namespace
}  // namespace verbena::tools
