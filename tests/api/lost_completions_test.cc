// SPDX-License-Identifier: Apache-2.0
// A completion queue that overran, and callbacks that throw while what waited for it is told.
#include <array>
#include <stdexcept>

#include "async/engine_state.h"
#include "device/queue_pair_steps.h"
#include "test_pair.h"

namespace verbena {
namespace {

using test::must;
using test::Pair;

// More completions than it holds, of a queue pair that nobody knows.
void overrun(AttachedDevice& device, CompletionShard& shard) {
  constexpr std::uint64_t kNobody = std::uint64_t{0xfff00000} << 32;
  provider::Context& context = device.context();
  provider::QueuePairSpec spec;
  spec.pd = provider::PdId{device.state().domain->id()};
  spec.capabilities.max_receive_requests = shard.capacity + 1;
  spec.send_cq = spec.receive_cq = shard.id;
  const Qpn intruder = must(context.create_qp(spec)).qpn;
  must(queue_pair_steps::to_init(context, intruder, spec.type, Access::All));
  for (std::uint32_t i = 0; i <= shard.capacity; ++i) {
    const ReceiveRequest request{kNobody, {}};
    ASSERT_TRUE(context.qp(intruder)->post_receive({&request, 1}));
  }
  must(queue_pair_steps::to_error(context, intruder));
  must(context.destroy_qp(intruder));
}

TEST(LostCompletions, what_waits_for_lost_completions_fails_though_many_callbacks_throw) {
  Pair pair;
  Connection near = pair.connect();
  std::array<Operation, 12> throwing;
  Operation last;
  for (Operation& each : throwing) {
    each.on_done([](Operation&) { throw std::runtime_error("out of a callback"); });
    near.receive(each, Segments{});
  }
  near.receive(last, Segments{});
  AttachedDevice& device = *pair.engine.state().find(&pair.client);
  overrun(device, *device.shards().front());
  for (std::size_t i = 0; i < throwing.size(); ++i)
    EXPECT_THROW(pair.engine.run_until([&] { return last.done(); }, Duration::seconds(20)), std::runtime_error);
  EXPECT_TRUE(pair.engine.run_until([&] { return last.done(); }, Duration::seconds(20)));
}

}  // namespace
}  // namespace verbena
