// SPDX-License-Identifier: Apache-2.0
// A random walk of mostly valid verbs on pairs of queue pairs, and the programs' side of all checks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/coverage.h"
#include "sim/pair.h"
#include "sim/world.h"

namespace verbena::sim {

class Workload final : public Application {
 public:
  Workload(World& world);

  static std::uint64_t memory_per_node(const Options& options);
  // Connects the pairs and starts the programs.
  void start();
  // All requests have been posted, or time is up: no new work, no faults, and everything must end.
  bool is_done() const { return settled_ == pairs_.size() && healed_; }
  // Ends what is left and checks what can be checked at the end.
  void finish();

  std::uint64_t completions() const { return completions_; }
  std::uint64_t connections() const { return connections_; }
  const Coverage& coverage() const { return coverage_; }

  void on_sent(const Flight& flight) override;
  void on_delivery(const Flight& flight) override;
  void on_polled(std::uint8_t node) override;
  void on_event(std::uint8_t node, const core::Event& event) override;
  void on_tick(std::uint32_t argument) override;
  bool next_unsent(const Flight& flight, Psn& psn) override;

 private:
  enum class Tick : std::uint8_t { Work, Finish, Open };
  struct Known {
    Qpn qpn;
    std::uint16_t pair = 0;
    std::uint8_t side = 0;
  };
  static constexpr std::size_t kMaxBatch = 4;

  // workload.cc
  void set_up_host(std::uint8_t node);
  void set_up_pair(std::uint32_t index);
  void tick_at(Instant at, const Pair& pair, Tick kind);
  void work(Pair& pair);
  void heal_if_due();
  void settle_if_idle(Pair& pair);
  const Known* known(std::uint8_t node, Qpn qpn) const;
  soft::Nic& nic(const Side& side) { return world_.node(side.node).nic; }
  void fail(std::string_view oracle, std::string_view what);
  Duration random_up_to(Duration limit);

  // connecting.cc
  void open(Pair& pair);
  bool create_queue_pair(Pair& pair, std::size_t s);
  void register_areas(Pair& pair, std::size_t s);
  bool to_init(const Side& side);
  bool to_rtr(const Side& side, const Side& peer, Psn first_psn);
  bool to_rts(Side& side, Psn first_psn);
  void begin_work(Pair& pair);
  void begin_closing(Pair& pair, Duration patience);
  void close(Pair& pair);
  bool account_for_receives(const Side& side);
  void take_down(Pair& pair);

  // control.cc
  void kill(Pair& pair, std::size_t s);
  bool change_state(const Side& side, QueuePairState to);
  void withdraw(Pair& pair, std::size_t s);
  void drain_or_resume(Pair& pair, std::size_t s);
  void on_drained(std::uint8_t node, Qpn qpn);
  void misuse(Pair& pair, std::size_t s);
  void post_nonsense(Pair& pair, std::size_t s);
  void expect_refused(const Result<void>& result, ErrorCode code, std::string_view what);

  // cm_programs.cc
  void listen(std::uint8_t node);
  void ask_for_connection(Pair& pair);
  void on_cm_event(std::uint8_t node, const cm::Event& event);
  void on_connect_request(std::uint8_t node, const cm::Event& event);
  void on_connect_response(Pair& pair, const cm::Event& event);
  void on_established(Pair& pair, std::size_t s);
  void on_handshake_failed(Pair& pair, std::size_t s, const cm::Event& event);
  bool find_connection(std::uint8_t node, cm::ConnectionId id, Pair*& pair, std::size_t& s);
  bool parameters_agree(const cm::ConnectionParameters& mine, const Side& peer);
  void forget_connection(Side& side);
  void on_first_data(std::uint8_t node, Qpn qpn);
  void disconnect(Pair& pair, std::size_t s);
  void destroy_cm(std::uint8_t node);

  // posting.cc
  void post_receives(Pair& pair, std::size_t s, std::uint32_t count);
  bool prepare_receive(Pair& pair, std::size_t s, PostedReceive& receive);
  std::uint32_t post_sends(Pair& pair, std::size_t s, std::uint32_t count);
  bool prepare_send(Pair& pair, std::size_t s, Operation& op);
  SendRequest request_of(const Pair& pair, std::size_t s, const Operation& op, std::span<ScatterGather> sges,
                         std::uint64_t number);
  std::uint64_t id_of(const Pair& pair, std::size_t s, bool receive, std::uint64_t number) const;

  // drawing.cc
  bool draw(Pair& pair, std::size_t s, std::uint32_t ahead, std::uint32_t receives_ahead, Operation& op);
  SendOpcode draw_opcode();
  std::uint32_t draw_length(std::uint32_t most);
  void draw_place(const Pair& pair, std::size_t s, Operation& op);
  bool draw_defect(Pair& pair, std::size_t s, std::uint64_t receive, Operation& op);
  void draw_flags(const Pair& pair, std::size_t s, std::uint32_t ahead, Operation& op);
  bool scripted(Pair& pair, std::size_t s, Operation& op);

  // outcomes.cc
  void drain_events(std::uint8_t node);
  void note_completion(std::uint8_t node, bool receive, bool solicited);
  void on_bell(std::uint8_t node, core::CqId cq);
  void check_bell(Bell& bell, core::CompletionQueue& cq);
  void poll_completions(std::uint8_t node);
  void take_completions(std::uint8_t node, core::CompletionQueue& cq);
  void on_completion(std::uint8_t node, const Completion& completion);
  void on_receive_completion(Pair& pair, std::size_t s, const Completion& completion, std::uint64_t number);
  void take_message(Pair& pair, std::size_t s, const Completion& completion, std::uint64_t number);
  void check_counters();
  void destroy_everything();

  // What is about to be posted. Kept, as filling such arrays with nothing each time takes longer than most turns do.
  struct Batch {
    std::array<Operation, kMaxBatch> operations;
    std::array<std::array<ScatterGather, kMaxModelSegments>, kMaxBatch> sges;
    std::array<SendRequest, kMaxBatch> requests;
    std::array<std::uint64_t, kMaxBatch> marks{};
  };

  World& world_;
  const Options& options_;
  SeededRandom random_;
  std::vector<Host> hosts_;
  std::vector<cm::ListenerId> listeners_;  // by node
  std::vector<Pair> pairs_;
  std::vector<std::vector<Known>> known_;  // by node
  std::uint32_t max_message_ = 0;
  std::uint64_t operations_left_ = 0;
  std::size_t next_scripted_ = 0;
  std::uint64_t next_serial_ = 1;
  std::size_t settled_ = 0;
  bool healed_ = false;
  Instant healed_at_, faults_end_;
  std::uint64_t healed_packets_ = 0;
  std::uint64_t completions_ = 0, connections_ = 0;
  Coverage coverage_;
  Batch batch_;
};

}  // namespace verbena::sim
