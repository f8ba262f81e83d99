// SPDX-License-Identifier: Apache-2.0
// The first promise that was broken. Everything stops there.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "verbena/base/time.h"

namespace verbena::sim {

class Verdict {
 public:
  bool failed() const { return !oracle_.empty(); }
  // `oracle` names the promise; the first failure counts.
  void fail(std::string_view oracle, std::string detail) {
    if (failed()) return;
    oracle_ = oracle;
    detail_ = std::move(detail);
  }
  const std::string& oracle() const { return oracle_; }
  const std::string& detail() const { return detail_; }

 private:
  std::string oracle_, detail_;
};

}  // namespace verbena::sim
