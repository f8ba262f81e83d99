// SPDX-License-Identifier: Apache-2.0
// Verbena's own device, in software: RoCE v2 in user space over UDP sockets.
#pragma once

#include "provider/provider.h"

namespace verbena::soft {

const provider::Provider& soft_provider();

}  // namespace verbena::soft
