// SPDX-License-Identifier: Apache-2.0
// Requests of every kind, drawn from a seed, in both directions at once. The network may lose, double and
// reorder what it likes: every message arrives once, in order, with its bytes.
#include <algorithm>
#include <array>
#include <random>

#include "cases.h"

namespace verbena::interop {

namespace {

constexpr std::uint32_t kRequests = 32;  // per direction

// One direction: the plan of its requests, and what they must leave behind.
class Direction {
 public:
  Direction(World& w, Side& from, Side& to, std::uint64_t seed)
      : w_(w), from_(from), to_(to), seed_(seed), random_(seed) {}

  void make_regions() {
    source_ = from_.make_region(bytes());
    peer_source_ = to_.make_region(bytes());
    target_ = to_.make_region(bytes());
    back_ = from_.make_region(bytes());
    counter_ = to_.make_region(8);
    results_ = from_.make_region(8 * kRequests);
    if (w_.report.failed()) return;
    from_.fill(source_.id, 0, bytes(), seed_);
    to_.fill(peer_source_.id, 0, bytes(), seed_ + 1);
    to_.store(counter_.id, 0, count_);
  }

  // `pair` sends, `peer` is the other end's.
  void plan() {
    std::vector<std::byte> sent(bytes()), read(bytes());
    fill_pattern(sent, seed_);
    fill_pattern(read, seed_ + 1);
    expected_target_.assign(bytes(), kUntouched);
    expected_back_.assign(bytes(), kUntouched);
    expected_results_.assign(8 * kRequests, kUntouched);
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      static constexpr std::array kOpcodes{SendOpcode::Send,       SendOpcode::SendWithImmediate,
                                           SendOpcode::RdmaWrite,  SendOpcode::RdmaWriteWithImmediate,
                                           SendOpcode::RdmaRead,   SendOpcode::CompareAndSwap,
                                           SendOpcode::FetchAndAdd};
      const SendOpcode opcode = kOpcodes[random_() % kOpcodes.size()];
      if (opcode == SendOpcode::CompareAndSwap || opcode == SendOpcode::FetchAndAdd)
        plan_atomic(i, opcode);
      else
        plan_transfer(i, opcode, opcode == SendOpcode::RdmaRead ? read : sent);
    }
    requests_.back().flags = SendFlags::Signaled;
  }

  void post_receives(std::uint64_t pair) {
    for (const Received& r : received_)
      to_.post_receive(
          pair, r.id,
          r.into_target ? std::vector<Piece>{{target_.id, r.offset, r.bytes}} : std::vector<Piece>{});
  }
  void post(std::uint64_t pair) { from_.post_send(pair, requests_); }

  void check(std::uint64_t pair, std::uint64_t peer) {
    std::vector<Expected> completed, received;
    for (const Request& r : requests_)
      if (has_flag(r.flags, SendFlags::Signaled)) completed.push_back({r.id});
    for (const Received& r : received_) received.push_back({r.id});
    expect_outcomes(w_, from_, pair, Queue::Send, completed);
    const auto got = expect_outcomes(w_, to_, peer, Queue::Receive, received);
    expect_none(w_, from_, pair, Queue::Send);
    expect_none(w_, to_, peer, Queue::Receive);
    for (std::size_t i = 0; i < got.size() && !w_.report.failed(); ++i) {
      w_.report.expect(got[i].bytes == received_[i].bytes, "a message of another length");
      w_.report.expect(got[i].immediate == received_[i].immediate, "another immediate than was sent");
    }
    expect_bytes(to_, target_, expected_target_, "sent and written bytes");
    expect_bytes(from_, back_, expected_back_, "bytes read");
    expect_bytes(from_, results_, expected_results_, "results of atomics");
    if (!w_.report.failed())
      w_.report.expect(to_.load(counter_.id, 0) == count_, "an atomic did not count once");
  }

 private:
  struct Received {
    std::uint64_t id = 0;
    bool into_target = false;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    std::optional<std::uint32_t> immediate{};
  };

  std::uint64_t slot() const { return 4 * std::uint64_t{w_.mtu}; }
  std::uint64_t bytes() const { return kRequests * slot(); }
  SendFlags flags() { return random_() % 3 == 0 ? SendFlags::Signaled : SendFlags::None; }

  void plan_transfer(std::uint32_t i, SendOpcode opcode, const std::vector<std::byte>& content) {
    const bool reads = opcode == SendOpcode::RdmaRead;
    const std::array<std::uint32_t, 6> sizes{
        1,          w_.mtu - 1,     w_.mtu,
        w_.mtu + 1, 3 * w_.mtu + 1, static_cast<std::uint32_t>(random_() % slot()) + 1};
    const std::uint32_t size = sizes[random_() % sizes.size()];
    const std::uint64_t at = i * slot() + random_() % (slot() - size + 1);
    const std::uint32_t immediate = 0xabc00000u + i;
    const RegionHandle& remote = reads ? peer_source_ : target_;
    requests_.push_back({i,
                         opcode,
                         flags(),
                         {{reads ? back_.id : source_.id, at, size}},
                         remote.address + at,
                         remote.rkey,
                         immediate});
    auto& expected = reads ? expected_back_ : expected_target_;
    std::copy_n(content.begin() + static_cast<std::ptrdiff_t>(at), size,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
    const bool sends = opcode == SendOpcode::Send || opcode == SendOpcode::SendWithImmediate;
    if (sends || opcode == SendOpcode::RdmaWriteWithImmediate)
      received_.push_back(
          {i, sends, at, size,
           opcode == SendOpcode::Send ? std::nullopt : std::optional<std::uint32_t>{immediate}});
  }

  void plan_atomic(std::uint32_t i, SendOpcode opcode) {
    Request request{
        i, opcode, flags(), {{results_.id, 8 * std::uint64_t{i}, 8}}, counter_.address, counter_.rkey};
    for (unsigned b = 0; b < 8; ++b) expected_results_[8 * i + b] = static_cast<std::byte>(count_ >> (8 * b));
    if (opcode == SendOpcode::FetchAndAdd) {
      request.swap_or_add = random_();
      count_ += request.swap_or_add;
    } else {
      const bool hits = random_() % 2 == 0;
      request.compare = hits ? count_ : ~count_;
      request.swap_or_add = random_();
      if (hits) count_ = request.swap_or_add;
    }
    requests_.push_back(request);
  }

  // Names the first request whose slot is not as it should be.
  void expect_bytes(Side& side, const RegionHandle& region, const std::vector<std::byte>& expected,
                    const std::string& what) {
    if (w_.report.failed()) return;
    const Digest all = side.digest(region.id, 0, expected.size());
    w_.report.expect(all.intact, side.name() + ": bytes beside the region were overwritten");
    if (all.hash == hash_of(expected)) return;
    const std::size_t slot = expected.size() / kRequests;
    for (std::size_t i = 0; i < kRequests; ++i)
      if (side.digest(region.id, i * slot, slot).hash != hash_of(std::span{expected}.subspan(i * slot, slot)))
        return w_.report.fail(side.name() + ": " + what + " differ at request " + std::to_string(i));
    w_.report.fail(side.name() + ": " + what + " changed while they were looked at");
  }

  World& w_;
  Side& from_;
  Side& to_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::uint64_t count_ = 1;  // what the counter holds after the requests planned so far
  RegionHandle source_, peer_source_, target_, back_, counter_, results_;
  std::vector<Request> requests_;
  std::vector<Received> received_;
  std::vector<std::byte> expected_target_, expected_back_, expected_results_;
};

}  // namespace

void run_mixed(World& w) {
  PairOptions options;
  options.timeout = 15;  // 134 ms: under loss it decides how long a run takes
  options.retry_count = 7;
  // Powers of two: the kernel's rxe rounds the bound up to one, and would then ask for more than was agreed.
  options.max_rd_atomic = options.max_dest_rd_atomic = static_cast<std::uint8_t>(1u << w.seed % 5);
  const Link link = connect(w, options, options);
  Direction there(w, w.requester, w.responder, 2 * w.seed),
      back(w, w.responder, w.requester, 2 * w.seed + 1'000'003);
  there.make_regions();
  back.make_regions();
  if (w.report.failed()) return;
  there.plan();
  back.plan();
  there.post_receives(link.responder);
  back.post_receives(link.requester);
  there.post(link.requester);
  back.post(link.responder);
  there.check(link.requester, link.responder);
  back.check(link.responder, link.requester);
}

}  // namespace verbena::interop
