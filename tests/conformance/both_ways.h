// SPDX-License-Identifier: Apache-2.0
// What the numbered rules say of requests and their outcomes, by packets and through memory: the same test
// for both.
#pragma once

#include <initializer_list>
#include <ostream>

#include "pair.h"

namespace verbena::conformance {

struct Outcome {
  std::uint64_t id;
  CompletionStatus status = CompletionStatus::Success;

  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& to, const Outcome& o) {
    return to << o.id << " " << to_string(o.status);
  }
};
using Outcomes = std::vector<Outcome>;
using Events = std::vector<AsyncEventType>;

inline Outcomes outcomes(const std::vector<Completion>& completions) {
  Outcomes all;
  for (const Completion& completion : completions) all.push_back({completion.id, completion.status});
  return all;
}

// Requests from one side, near, to the other, far; offsets are those in their memory.
class Talk : public Pair {
 public:
  explicit Talk(const Given& given) : Talk(given, given) {}
  Talk(const Given& given, const Given& second)
      : Pair(given, second), near(*side(0).memory), far(*side(1).memory) {}

  void send(std::uint64_t id, std::uint32_t offset, std::uint32_t length,
            SendFlags flags = SendFlags::Signaled) {
    post(0, id, SendOpcode::Send, {near.sge(offset, length)}, 0, {}, flags);
  }
  void receive(std::uint64_t id, std::uint32_t offset, std::uint32_t length) {
    post_receive(1, id, {far.sge(offset, length)});
  }
  void write(std::uint64_t id, std::uint32_t offset, std::uint32_t length, std::uint64_t at,
             SendFlags flags = SendFlags::Signaled) {
    post(0, id, SendOpcode::RdmaWrite, {near.sge(offset, length)}, far.va(at), far.rkey(), flags);
  }
  void write_immediate(std::uint64_t id, std::uint32_t offset, std::uint32_t length, std::uint64_t at) {
    SendRequest request = to_far(id, SendOpcode::RdmaWriteWithImmediate, at);
    const ScatterGather piece = near.sge(offset, length);
    request.local = {&piece, 1};
    request.immediate = {std::byte{9}, std::byte{8}, std::byte{7}, std::byte{6}};
    post(0, request);
  }
  void read(std::uint64_t id, std::uint32_t offset, std::uint32_t length, std::uint64_t at,
            SendFlags flags = SendFlags::Signaled) {
    post(0, id, SendOpcode::RdmaRead, {near.sge(offset, length)}, far.va(at), far.rkey(), flags);
  }
  void add(std::uint64_t id, std::uint32_t offset, std::uint64_t at, std::uint64_t value,
           SendFlags flags = SendFlags::Signaled) {
    SendRequest request = to_far(id, SendOpcode::FetchAndAdd, at);
    request.flags = flags;
    atomic(request, offset, 0, value);
  }
  void swap(std::uint64_t id, std::uint32_t offset, std::uint64_t at, std::uint64_t expected,
            std::uint64_t value) {
    atomic(to_far(id, SendOpcode::CompareAndSwap, at), offset, expected, value);
  }
  // The request that fails for what it asks for; `of` is where.
  void ask(std::uint64_t id, SendOpcode opcode, std::uint32_t length, std::uint64_t address, RKey rkey) {
    post(0, id, opcode, {near.sge(0, length)}, address, rkey);
  }

  // Outcomes since asked last, polled in this order.
  Outcomes sent() { return take(side(0).sends); }
  Outcomes received() { return take(side(1).receives); }

  Memory& near;
  Memory& far;

 private:
  SendRequest to_far(std::uint64_t id, SendOpcode opcode, std::uint64_t at) {
    SendRequest request;
    request.id = id;
    request.opcode = opcode;
    request.remote_address = far.va(at);
    request.rkey = far.rkey();
    return request;
  }
  void atomic(SendRequest request, std::uint32_t offset, std::uint64_t compare, std::uint64_t value) {
    const ScatterGather piece = near.sge(offset, 8);
    request.local = {&piece, 1};
    request.compare = compare;
    request.swap_or_add = value;
    post(0, request);
  }
  static Outcomes take(std::vector<Completion>& from) {
    const Outcomes all = outcomes(from);
    from.clear();
    return all;
  }
};

inline const auto kWays =
    testing::Values(Way::Packets, Way::Rings, Way::PulledRings, Way::GrantedRings);

class BothWays : public testing::TestWithParam<Way> {
 protected:
  static Given given() {
    Given given;
    given.way = GetParam();
    return given;
  }
  static bool pulls() { return GetParam() == Way::PulledRings || GetParam() == Way::GrantedRings; }
};

inline std::string name_of(const testing::TestParamInfo<Way>& info) {
  constexpr const char* kNames[] = {"packets", "rings", "pulled", "granted"};
  return kNames[static_cast<std::size_t>(info.param)];
}

}  // namespace verbena::conformance
