// SPDX-License-Identifier: Apache-2.0
// Two devices that do not take the same packets, in a network of a process of its own.
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "test_process.h"

namespace verbena {
namespace {

using test::must;
using test::Process;

bool set_loopback(int mtu) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_mtu = mtu;
  bool ok = ::ioctl(fd, SIOCSIFMTU, &request) == 0;
  request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
  ok = ::ioctl(fd, SIOCSIFFLAGS, &request) == 0 && ok;
  ::close(fd);
  return ok;
}

TEST(PathMtu, the_smaller_of_both_devices_is_what_a_connection_gets) {
  Process child([](const auto& say) {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      return say("no network");
    if (!set_loopback(9000)) return say("no network");
    Device large = must(Device::open());
    if (!set_loopback(1500)) return say("no network");
    Device small = must(Device::open());
    ProgressEngine engine = must(ProgressEngine::create(large));
    must(engine.add(small));
    for (Device* passive : {&small, &large}) {
      Device* const active = passive == &small ? &large : &small;
      Listener listener = must(Listener::create(engine, {.device = passive}));
      std::optional<Connection> far;
      listener.on_request([&] { far.emplace(must(listener.poll_request()->accept())); });
      ConnectionOptions options;
      options.device = active;
      auto near = Connection::connect(engine, listener.address().to_string(), options);
      if (!near) return say(near.error().to_string());
      say(std::to_string(near->path_mtu()) + " " + std::to_string(far->path_mtu()));
    }
  });
  const std::string first = child.hear();
  if (first == "no network") GTEST_SKIP() << "the system gives no network of its own";
  EXPECT_EQ(first, "1024 1024");
  EXPECT_EQ(child.hear(), "1024 1024");
}

}  // namespace
}  // namespace verbena
