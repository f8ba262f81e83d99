// SPDX-License-Identifier: Apache-2.0
// A hub in a forked child, where it is its parent's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>

#include "base/fault_guard.h"
#include "soft/driver/local/test_process.h"
#include "soft/driver/local/test_side.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;

TEST(HubFork, what_a_child_connects_reaches_nobody_and_is_told_so) {
  fault_guard::install();  // as a device has it: the memory of its peers is not in the child
  Side a(1), b(2), insists(3, true);
  a.connect(b.endpoint());
  b.connect(a.endpoint());
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  const verbena::local::Endpoint peer{b.endpoint().gid, Qpn{77}};
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor in(ends[0]);
  Descriptor out(ends[1]);
  TestProcess child([&] {
    a.use_another();
    a.connect(peer);
    const auto entered = insists.to_rtr(peer);
    const std::string said = a.explained() + (entered ? "entered" : entered.error().to_string());
    const bool told = ::write(out.get(), said.data(), said.size()) > 0;
    for (;;) ::pause();
    return told ? 0 : 1;
  });
  out = Descriptor();  // its death is the end of what it says
  std::string said(4096, '\0');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(in.get(), said.data(), said.size()), 0)));
  EXPECT_THAT(said, HasSubstr("RoCE, because this process inherited the device by a fork"));
  EXPECT_THAT(said, HasSubstr("NotSupported"));
  EXPECT_FALSE(b.hub->handle_events(b.now, true)) << "nobody asked";
  EXPECT_FALSE(a.hub->handle_events(a.now, true));
  child.kill_and_wait();
  pollfd awake{a.hub->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&awake, 1, 0), 0);
  a.write(1, b, 8);
  for (int i = 0; i < 4; ++i) a.turn(), b.turn();
  EXPECT_EQ(a.completions().size(), 1u) << "and the parent goes on";
}

// Held in both: the parent alone answers it.
TEST(HubFork, an_ask_that_waits_is_its_parents) {
  Side asks(1), asked(2);
  asks.connect(asked.endpoint());
  asked.turn();
  TestProcess child([&] {
    asked.connect(asks.endpoint());
    return asked.on_packets() ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  asks.turn();
  EXPECT_FALSE(asks.on_packets());
  asked.connect(asks.endpoint());
  asks.turn();
  EXPECT_TRUE(asks.on_rings() && asked.on_rings());
}

}  // namespace
}  // namespace verbena::soft::local
