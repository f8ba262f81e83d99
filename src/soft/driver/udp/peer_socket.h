// SPDX-License-Identifier: Apache-2.0
// A second socket at port 4791 of an address that nobody shares, connected to one peer: for what comes from there the
// kernel finds the socket and the way to it in one, where it looks for both with each datagram otherwise. And who reads
// from it knows the source, and need not ask for it.
#pragma once

#include <functional>
#include <mutex>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/receiver.h"

namespace verbena::soft::udp {

// Any thread.
class PeerSocket {
 public:
  // Beside `general`, which has the port alone; leads nowhere yet, and gets nothing. None where the system refuses.
  // Errors: AddressInUse (somebody took the port in the moment in which two may have it).
  Result<void> open(int general, const LocalAddress& local);
  // -1: none. The same until its end, which is that of this object.
  int fd() const { return socket_.get(); }
  // From nowhere to a peer: what comes from the source of that path is found here from now on, what came before is
  // where it was. False: not now.
  bool lead_to(const wire::Path& path);
  // What came here before is still to be read. False: not now, and it leads where it did.
  bool lead_nowhere();
  // Nothing is found at fd() from here on, and `general` has the port alone; `late` gets what came here till now. After
  // an error nothing has changed.
  Result<void> close(const std::function<void(const ReceivedTrain&)>& late);

 private:
  bool connect_to(int fd, const Gid& peer, std::uint16_t port) const;

  std::mutex mutex_;
  LocalAddress local_;
  Descriptor socket_;
  bool is_open_ = false;
  bool is_deaf_ = true;
};

}  // namespace verbena::soft::udp
