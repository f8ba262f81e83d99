// SPDX-License-Identifier: Apache-2.0
// Everything there is: devices, progress, operations, connections.
#pragma once

#include "verbena/async/operation.h"
#include "verbena/async/progress_engine.h"
#include "verbena/async/receive_pool.h"
#include "verbena/async/task.h"
#include "verbena/async/when.h"
#include "verbena/base/device_info.h"
#include "verbena/base/error.h"
#include "verbena/base/gid.h"
#include "verbena/base/ids.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/base/verbs.h"
#include "verbena/connection/connection.h"
#include "verbena/connection/endpoint.h"
#include "verbena/connection/listener.h"
#include "verbena/connection/retry.h"
#include "verbena/device/buffer_pool.h"
#include "verbena/device/device.h"
#include "verbena/device/registration_cache.h"
#include "verbena/device/remote_memory.h"
