// SPDX-License-Identifier: Apache-2.0
#include "sim/flow.h"

#include "soft/wire/text.h"

namespace verbena::sim {

CompletionStatus status_of(Defect defect) {
  switch (defect) {
    case Defect::None:
      return CompletionStatus::Success;
    case Defect::UnknownKey:
    case Defect::StaleKey:
    case Defect::BeyondEnd:
    case Defect::BeforeStart:
    case Defect::NoPermission:
    case Defect::ForeignDomain:
      return CompletionStatus::RemoteAccessError;
    case Defect::Misaligned:
    case Defect::TooLong:
      return CompletionStatus::RemoteInvalidRequest;
    case Defect::BadReceive:
      return CompletionStatus::RemoteOperationError;
    case Defect::BadLocalKey:
      return CompletionStatus::LocalProtectionError;
  }
  return CompletionStatus::GeneralError;
}

wire::NakCode nak_of(Defect defect) {
  switch (status_of(defect)) {
    case CompletionStatus::RemoteAccessError:
      return wire::NakCode::RemoteAccess;
    case CompletionStatus::RemoteInvalidRequest:
      return wire::NakCode::InvalidRequest;
    case CompletionStatus::RemoteOperationError:
      return wire::NakCode::RemoteOperation;
    default:
      return wire::NakCode::SequenceError;
  }
}

Flow::Flow(const Options& options, Verdict& verdict, std::string name)
    : options_(options), verdict_(verdict), name_(std::move(name)) {}

void Flow::set_places(const Places& places) {
  places_ = places;
  image_.assign(places.target.base, places.target.base + places.target.size);
}

void Flow::set_regions(const core::MemoryRegion& local, const core::MemoryRegion& target,
                       const core::MemoryRegion& stable) {
  places_.local.region = local;
  places_.target.region = target;
  places_.stable.region = stable;
}

void Flow::open(Psn first_psn, std::uint32_t path_mtu, Instant now) {
  mtu_ = path_mtu;
  buffers_.reset(places_.local);
  const std::uint64_t first = (std::uint64_t{1} << 32) + first_psn.value();
  operations_.reset(0);
  consumers_.reset(0);
  slots_.reset(first);
  messages_.reset(0);
  next_completion_ = confirmed_ = received_ = hint_ = 0;
  fatal_ = first_error_ = kNone;
  una_ = acked_ = next_ = cursor_ = expected_ = said_acked_ = latest_delivered_ = first;
  run_next_ = kNone;
  fetches_out_ = without_ack_request_ = fatal_naks_ = 0;
  last_progress_ = now;
  errored_ = draining_ = target_gone_ = false;
}

void Flow::withdraw_target() {
  target_gone_ = true;
  const auto bytes = places_.target.bytes(0, places_.target.size);
  last_target_.assign(bytes.begin(), bytes.end());
}

void Flow::check_drained() {
  for (std::uint64_t n = next_completion_; n < operations_.end(); ++n)
    if (operations_[n].started && operations_[n].end() > una_)
      fail("SQD", "drained, though a request is under way", n);
}

const Operation& Flow::add(const Operation& operation) {
  const std::uint64_t first =
      operations_.size() == 0 ? slots_.end() : operations_[operations_.end() - 1].end();
  Operation& op = operations_.add();
  std::vector<std::byte> kept = std::move(op.expected);
  op = operation;
  op.expected = std::move(kept);
  op.expected.clear();
  op.first = first;
  op.packets = op.is_atomic() || op.length == 0 ? 1 : (op.length - 1) / mtu_ + 1;
  for (std::uint32_t i = 0; i < op.packets; ++i) slots_.add() = Slot{};
  const std::uint64_t number = operations_.end() - 1;
  if (op.takes_receive()) {
    op.consumer = consumers_.end();
    consumers_.add() = number;
  }
  if (op.defect != Defect::None && number < fatal_) fatal_ = number;
  return op;
}

const Operation* Flow::consumer(std::uint64_t receive) const {
  return consumers_.holds(receive) && operations_.holds(consumers_[receive])
             ? &operations_[consumers_[receive]]
             : nullptr;
}

bool Flow::has_broken_responder() const {
  if (target_gone_) return true;
  return fatal_ != kNone && operations_.holds(fatal_) && operations_[fatal_].delivered &&
         kills_responder(operations_[fatal_].defect);
}

std::string Flow::describe(const Operation& op) const {
  constexpr std::string_view kNames[] = {"WRITE", "WRITE imm", "SEND", "SEND imm", "READ", "CAS", "FAA"};
  wire::Line line;
  line.add(kNames[static_cast<std::size_t>(op.opcode)]).add(" of ").decimal(op.length).add(" B at psn ");
  line.hex(op.first & Psn::kMask, 6).add("+").decimal(op.packets);
  if (op.defect != Defect::None) line.add(", made to fail");
  return line.take();
}

bool Flow::fail(std::string_view oracle, std::string_view what, std::uint64_t number) {
  if (verdict_.failed()) return false;
  wire::Line line(name_);
  line.add(": ").add(what);
  if (operations_.holds(number))
    line.add("; request ").decimal(number).add(": ").add(describe(operations_[number]));
  verdict_.fail(oracle, line.take());
  return false;
}

// Nothing is forgotten of a connection that ended badly: close() looks at it again.
void Flow::retire() {
  if (errored_) return;
  while (operations_.begin() < next_completion_ && operations_.begin() < confirmed_) {
    const Operation& op = operations_[operations_.begin()];
    if (op.takes_receive() && op.consumer >= received_) return;
    for (std::uint32_t i = 0; i < op.packets; ++i) slots_.pop();
    if (op.takes_receive()) consumers_.pop();
    while (messages_.size() != 0 && messages_[messages_.begin()] <= slots_.begin()) messages_.pop();
    operations_.pop();
  }
}

}  // namespace verbena::sim
