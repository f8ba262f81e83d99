// SPDX-License-Identifier: Apache-2.0
#include "tools/nearest_word.h"

#include <gtest/gtest.h>

#include <vector>

namespace verbena::tools {
namespace {

const std::vector<std::string> kWords{"lat", "bw", "rate", "write", "send-receive", "shared-receive",
                                      "direct-read", "direct-read/fenced"};

TEST(NearestWord, finds_what_was_mistyped) {
  const std::vector<std::pair<std::string, std::string>> mistyped{
      {"lt", "lat"},
      {"latency", "lat"},
      {"wrte", "write"},
      {"rates", "rate"},
      {"direct_read", "direct-read"},
      {"shared", "shared-receive"},
      {"sendreceive", "send-receive"},
      {"send-recieve", "send-receive"},
      {"direct-read/fencd", "direct-read/fenced"}};
  for (const auto& [word, meant] : mistyped) {
    EXPECT_EQ(nearest_word(word, kWords), meant) << word;
    EXPECT_EQ(did_you_mean(word, kWords), " (did you mean " + meant + "?)");
  }
}

TEST(NearestWord, is_none_where_none_is_near) {
  for (const std::string& word : std::vector<std::string>{"", "pigeons", "sideways", "127.0.0.1", "x",
                                                          std::string(1000, 'a')}) {
    EXPECT_EQ(nearest_word(word, kWords), "") << word;
    EXPECT_EQ(did_you_mean(word, kWords), "");
  }
  EXPECT_EQ(nearest_word("lat", {}), "");
}

TEST(NearestWord, lists_words) { EXPECT_EQ(list_words(std::vector<std::string>{"lat", "bw"}), "lat, bw"); }

}  // namespace
}  // namespace verbena::tools
