// SPDX-License-Identifier: Apache-2.0
// Closing of descriptors that came from other users. Closing one may take as long as whoever made it likes: a socket
// that lingers, a file of a system of his own, whatever he has attached to what he sent. So a thread of its own does.
#pragma once

#include <cstddef>

namespace verbena::closing {

// While so many wait to be closed, nobody takes further ones.
inline constexpr std::size_t kMost = 64;

// Any thread; waits for nothing. `fd` is no more the caller's. A child that is forked meanwhile may have it.
void elsewhere(int fd);
bool is_behind(std::size_t most = kMost);
// The caller's, kept from children; readable (hung up) once it is behind no more. -1: no descriptor is left.
int caught_up();

}  // namespace verbena::closing
