// SPDX-License-Identifier: Apache-2.0
// A device that promises no more than the standard, around one that promises more: it takes WRITEs apart and has the
// pieces of all that were posted one after the other arrive shuffled, while the program goes on, and before READs and
// atomics that were posted first. Words of 8 bytes change at once, of bytes that are written twice the second stay, and
// a completion, an immediate, a SEND, a READ or an atomic comes behind all bytes before it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "device/device_factory.h"
#include "provider/provider.h"
#include "verbena/device/device.h"

namespace verbena::test {

struct StandardOptions {
  bool promises = false;  // says that it keeps the order inside a WRITE
  bool keeps = false;     // and keeps it
  std::uint64_t seed = 1;
  std::uint8_t max_rd_atomic = 16;
  // After it has confirmed a connection: what the peer says meanwhile is there before the program hears of that.
  Duration looks_away{};
  const bool* refuses = nullptr;   // while that is true it takes no request
  const bool* is_full = nullptr;   // while that is true it registers no memory
  std::uint64_t* posts = nullptr;  // where the requests that a program posts to its queue pairs are counted
};

class StandardContext final : public provider::Context {
 public:
  StandardContext(std::unique_ptr<provider::Context> inner, const StandardOptions& options)
      : inner_(std::move(inner)), info_(inner_->info()), keeps_(options.keeps), looks_away_(options.looks_away),
        refuses_(options.refuses), is_full_(options.is_full), posts_(options.posts), random_(options.seed) {
    info_.provider = "standard";
    info_.order_in_write = options.promises;
    info_.max_rd_atomic = options.max_rd_atomic;
    info_.max_requests /= kMostPieces;
  }

  // WRITEs that were taken apart, of all such devices.
  static inline std::uint64_t torn = 0;
  // How often engines slept on one.
  static inline std::uint64_t waits = 0;

  const DeviceInfo& info() const override { return info_; }
  std::vector<std::string> explain() const override { return inner_->explain(); }
  std::vector<NamedCounter> counters() const override { return inner_->counters(); }
  std::size_t objects() const override { return inner_->objects(); }
  std::string explain_path(Qpn qpn) const override { return inner_->explain_path(qpn); }
  std::string hint_about(const Gid& peer) const override { return inner_->hint_about(peer); }
  Result<void> close_capture() override { return inner_->close_capture(); }
  std::uint64_t random() override { return inner_->random(); }

  Result<provider::PdId> create_pd() override { return inner_->create_pd(); }
  Result<void> destroy_pd(provider::PdId pd) override { return inner_->destroy_pd(pd); }
  Result<provider::MemoryRegionInfo> register_memory(provider::PdId pd, void* base, std::uint64_t length,
                                                     std::uint64_t iova, Access access, int file) override {
    if (is_full_ != nullptr && *is_full_) return Error(ErrorCode::ResourceExhausted, "the device is full");
    return inner_->register_memory(pd, base, length, iova, access, file);
  }
  bool shares_memory() const override { return inner_->shares_memory(); }
  Result<void> deregister_memory(LKey lkey) override { return inner_->deregister_memory(lkey); }
  bool read_local(provider::PdId pd, const ScatterGather& from, std::byte* to) override {
    return inner_->read_local(pd, from, to);
  }
  Result<provider::CqId> create_cq(const provider::CompletionQueueSpec& spec) override {
    return inner_->create_cq(spec);
  }
  Result<void> destroy_cq(provider::CqId cq) override {
    auto done = inner_->destroy_cq(cq);
    if (done) cqs_.erase(cq);
    return done;
  }
  provider::CompletionQueueOps* cq(provider::CqId cq) override {
    auto& ops = cqs_[cq];
    if (!ops) ops = std::make_unique<Cq>(*inner_->cq(cq));
    return ops.get();
  }
  Result<provider::SrqId> create_srq(const provider::SharedReceiveQueueSpec& spec) override {
    return inner_->create_srq(spec);
  }
  Result<void> modify_srq(provider::SrqId srq, std::uint32_t limit) override {
    return inner_->modify_srq(srq, limit);
  }
  Result<SharedReceiveQueueAttributes> query_srq(provider::SrqId srq) const override {
    return inner_->query_srq(srq);
  }
  Result<void> destroy_srq(provider::SrqId srq) override { return inner_->destroy_srq(srq); }
  provider::SharedReceiveQueueOps* srq(provider::SrqId srq) override { return inner_->srq(srq); }

  Result<CreatedQueuePair> create_qp(const provider::QueuePairSpec& spec) override {
    provider::QueuePairSpec more = spec;
    more.capabilities.max_send_requests *= kMostPieces;
    auto made = inner_->create_qp(more);
    if (!made) return made;
    made->capabilities.max_send_requests /= kMostPieces;
    qps_[made->qpn] = std::make_unique<Qp>(*this, *inner_->qp(made->qpn));
    return made;
  }
  Result<void> modify_qp(Qpn qpn, const QueuePairAttributes& values, AttributeMask mask) override {
    return inner_->modify_qp(qpn, values, mask);
  }
  Result<QueuePairAttributes> query_qp(Qpn qpn) const override { return inner_->query_qp(qpn); }
  Result<void> destroy_qp(Qpn qpn) override {
    auto done = inner_->destroy_qp(qpn);
    if (done) qps_.erase(qpn);
    return done;
  }
  provider::QueuePairOps* qp(Qpn qpn) override {
    const auto found = qps_.find(qpn);
    return found == qps_.end() ? nullptr : found->second.get();
  }

  Result<provider::ListenerId> listen(std::uint16_t port, int backlog) override {
    return inner_->listen(port, backlog);
  }
  Result<std::uint16_t> listener_port(provider::ListenerId listener) const override {
    return inner_->listener_port(listener);
  }
  Result<void> stop_listening(provider::ListenerId listener) override { return inner_->stop_listening(listener); }
  Result<provider::ConnectionId> connect(const provider::ConnectionParameters& parameters,
                                         std::span<const std::byte> private_data) override {
    return inner_->connect(parameters, private_data);
  }
  Result<void> accept(provider::ConnectionId connection, const provider::ConnectionParameters& parameters,
                      std::span<const std::byte> private_data) override {
    return inner_->accept(connection, parameters, private_data);
  }
  Result<void> reject(provider::ConnectionId connection, std::span<const std::byte> private_data,
                      provider::Refusal why) override {
    return inner_->reject(connection, private_data, why);
  }
  Result<void> confirm(provider::ConnectionId connection) override {
    confirmed_ = true;
    return inner_->confirm(connection);
  }
  Result<void> disconnect(provider::ConnectionId connection) override { return inner_->disconnect(connection); }
  Result<void> destroy_connection(provider::ConnectionId connection) override {
    return inner_->destroy_connection(connection);
  }
  Result<provider::ConnectionParameters> connection_parameters(
      provider::ConnectionId connection) const override {
    return inner_->connection_parameters(connection);
  }

  // A piece or two of each queue pair at a time, or none: the program looks at its memory in between.
  bool progress() override {
    bool any = false;
    for (const auto& [qpn, qp] : qps_) any |= qp->let_go(random_.below(3));
    return inner_->progress() || any;
  }
  void gather_posts(bool on) override { inner_->gather_posts(on); }
  std::optional<provider::Event> poll_event() override {
    auto event = inner_->poll_event();
    if (!event && std::exchange(confirmed_, false))
      for (const Instant end = inner_->now() + looks_away_; inner_->now() < end;) progress();
    return event;
  }
  int event_fd() const override { return inner_->event_fd(); }
  Instant now() const override { return inner_->now(); }
  void wait_event(Instant until) override {
    ++waits;
    inner_->wait_event(until);
  }
  void wake() override { inner_->wake(); }

 private:
  static constexpr std::uint32_t kMostPieces = 8;
  static constexpr std::uint64_t kPieceId = 0xfffffffffffffff5;  // no request of a program has it

  void count(std::size_t requests) {
    if (posts_ != nullptr) *posts_ += requests;
  }

  // A failed piece completes though it is not signaled: the request it is of does, too.
  class Cq final : public provider::CompletionQueueOps {
   public:
    explicit Cq(provider::CompletionQueueOps& inner) : inner_(inner) {}
    std::size_t poll(std::span<Completion> out) override {
      for (;;) {
        const std::size_t count = inner_.poll(out);
        const auto all = out.first(count);
        for (const Completion& c : all)
          EXPECT_TRUE(c.id != kPieceId || c.status != CompletionStatus::LocalProtectionError) << "memory went early";
        const auto end = std::remove_if(all.begin(), all.end(), [](const auto& c) { return c.id == kPieceId; });
        if (count == 0 || end != all.begin()) return static_cast<std::size_t>(end - all.begin());
      }
    }
    void arm(bool solicited_only) override { inner_.arm(solicited_only); }

   private:
    provider::CompletionQueueOps& inner_;
  };

  class Qp final : public provider::QueuePairOps {
   public:
    Qp(StandardContext& context, provider::QueuePairOps& inner) : context_(context), inner_(inner) {}

    PostResult post_send(std::span<const SendRequest> requests) override {
      context_.count(requests.size());
      PostResult result{PostStatus::Ok, 0};
      if (context_.refuses_ != nullptr && *context_.refuses_) return {PostStatus::InvalidRequest, 0};
      for (const SendRequest& request : requests) {
        if (!context_.keeps_ && inner_.state() == QueuePairState::Rts && is_write(request)) {
          tear(request);
        } else if (!held_.empty()) {
          hold(request, 0, length_of(request), 0);
          run_ = request.opcode >= SendOpcode::RdmaRead ? run_ + 1 : 0;
        } else if (const PostResult one = inner_.post_send({&request, 1}); !one) {
          result.status = one.status;
          return result;
        }
        ++result.posted;
      }
      return result;
    }
    PostResult post_receive(std::span<const ReceiveRequest> requests) override {
      context_.count(requests.size());
      return inner_.post_receive(requests);
    }
    bool write_now(const ShortWrite&) override { return false; }
    bool read_now(const ShortRead&) override { return false; }
    QueuePairState state() const override { return inner_.state(); }

    // True while there is more to come.
    bool let_go(std::uint64_t pieces) {
      if (inner_.state() != QueuePairState::Rts) pieces = held_.size();
      for (; pieces != 0 && !held_.empty(); --pieces) {
        const PostStatus status = inner_.post_send({&held_.front().request, 1}).status;
        if (status == PostStatus::QueueFull) break;
        EXPECT_TRUE(status == PostStatus::Ok || inner_.state() != QueuePairState::Rts);
        held_.pop_front();
      }
      run_ = std::min(run_, held_.size());
      return !held_.empty();
    }

   private:
    using Bytes = std::shared_ptr<std::vector<std::byte>>;
    struct Held {
      SendRequest request;
      std::vector<ScatterGather> local{};
      Bytes own{};  // of what was inline
    };

    static bool is_write(const SendRequest& request) {
      return request.opcode == SendOpcode::RdmaWrite || request.opcode == SendOpcode::RdmaWriteWithImmediate;
    }
    static std::uint64_t length_of(const SendRequest& request) {
      std::uint64_t bytes = 0;
      for (const ScatterGather& piece : request.local) bytes += piece.length;
      return bytes;
    }
    // Offsets at which a WRITE there may be cut.
    static std::vector<std::uint64_t> words_between(std::uint64_t address, std::uint64_t bytes) {
      std::vector<std::uint64_t> cuts;
      for (std::uint64_t at = (8 - address % 8) % 8; at < bytes; at += 8)
        if (at != 0) cuts.push_back(at);
      return cuts;
    }

    void tear(const SendRequest& request) {
      const std::uint64_t bytes = length_of(request);
      const std::vector<std::uint64_t> cuts = words_between(request.remote_address, bytes);
      std::vector<std::uint64_t> edges{0, bytes};
      if (!cuts.empty()) {
        ++torn;
        edges.push_back(cuts.back());  // the last word, or less, is a piece
        for (int more = 0; more < 3; ++more) edges.push_back(cuts[context_.random_.below(cuts.size())]);
      }
      std::sort(edges.begin(), edges.end());
      edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
      SendRequest piece = request;
      piece.opcode = SendOpcode::RdmaWrite;
      piece.id = kPieceId;
      piece.flags = has_flag(request.flags, SendFlags::Inline) ? SendFlags::Inline : SendFlags::None;
      for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
        const std::size_t free = free_of(request.remote_address + edges[i], edges[i + 1] - edges[i]);
        hold(piece, edges[i], edges[i + 1], context_.random_.below(free + 1));
        ++run_;
      }
      // An immediate goes with all of it, for its length; a completion alone with none of it: nothing is stored twice.
      if (request.opcode == SendOpcode::RdmaWriteWithImmediate) {
        hold(request, 0, bytes, 0);
        run_ = 0;
      } else if (has_flag(request.flags, SendFlags::Signaled)) {
        hold(request, 0, 0, 0);
        ++run_;
      }
    }

    // So many of the last store none of those bytes.
    std::size_t free_of(std::uint64_t begin, std::uint64_t bytes) const {
      std::size_t count = 0;
      for (; count < run_; ++count) {
        const SendRequest& other = held_[held_.size() - 1 - count].request;
        const std::uint64_t length = other.id == kPieceId ? length_of(other) : is_write(other) ? 0 : 8;
        if (other.remote_address < begin + bytes && begin < other.remote_address + length) break;
      }
      return count;
    }

    // That part of it goes later, before so many of the last.
    void hold(const SendRequest& request, std::uint64_t begin, std::uint64_t end, std::uint64_t before) {
      Held& held = *held_.insert(held_.end() - static_cast<std::ptrdiff_t>(before), Held{request});
      if (is_write(request)) held.request.remote_address += begin;
      std::uint64_t at = 0;
      for (const ScatterGather& piece : request.local) {
        const std::uint64_t from = std::max(begin, at), to = std::min(end, at + piece.length);
        if (from < to)
          held.local.push_back({piece.address + (from - at), static_cast<std::uint32_t>(to - from), piece.lkey});
        at += piece.length;
      }
      if (has_flag(request.flags, SendFlags::Inline)) {
        held.own = std::make_shared<std::vector<std::byte>>();
        for (const ScatterGather& piece : held.local) {
          const auto* const bytes = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(piece.address));
          held.own->insert(held.own->end(), bytes, bytes + piece.length);
        }
        const auto length = static_cast<std::uint32_t>(held.own->size());
        held.local = {{reinterpret_cast<std::uintptr_t>(held.own->data()), length, {}}};
      }
      held.request.local = held.local;
    }

    StandardContext& context_;
    provider::QueuePairOps& inner_;
    std::deque<Held> held_;
    std::size_t run_ = 0;  // of the last, WRITEs and their completions: another WRITE may come before them
  };

  const std::unique_ptr<provider::Context> inner_;
  DeviceInfo info_;
  const bool keeps_;
  const Duration looks_away_;
  const bool* const refuses_;
  const bool* const is_full_;
  std::uint64_t* const posts_;
  bool confirmed_ = false;
  SeededRandom random_;
  std::map<provider::CqId, std::unique_ptr<Cq>> cqs_;
  std::map<Qpn, std::unique_ptr<Qp>> qps_;
};

// Nobody but the engine drives it, which must not sleep: so nothing arrives while the program looks.
inline Result<Device> open_standard(PathChoice path, const StandardOptions& options) {
  auto inner = provider::providers().front()->open({.path = path, .service_thread = false});
  if (!inner) return inner.error();
  return DeviceFactory::make(std::make_unique<StandardContext>(std::move(*inner), options));
}

}  // namespace verbena::test
