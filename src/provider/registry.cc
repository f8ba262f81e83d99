// SPDX-License-Identifier: Apache-2.0
// The only place that names every provider.
#include "provider/provider.h"
#include "soft/provider/soft_provider.h"

namespace verbena::provider {

const std::vector<const Provider*>& providers() {
  static const std::vector<const Provider*> all{&soft::soft_provider()};
  return all;
}

}  // namespace verbena::provider
