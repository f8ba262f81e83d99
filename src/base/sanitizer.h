// SPDX-License-Identifier: Apache-2.0
// Whether this is a build for a sanitizer.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define VERBENA_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define VERBENA_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBENA_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define VERBENA_ADDRESS_SANITIZER 1
#endif
#endif

namespace verbena {

#if defined(VERBENA_THREAD_SANITIZER) || defined(VERBENA_ADDRESS_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace verbena
