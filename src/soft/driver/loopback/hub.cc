// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/loopback/hub.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <vector>

namespace verbena::soft::loopback {

namespace {

constexpr std::size_t kMailboxDatagrams = 4096;  // more are lost, as in any network

struct Datagram {
  wire::Path path;
  std::uint16_t identification = 0;
  std::vector<std::byte> bytes;
};

}  // namespace

struct Hub::Mailbox {
  Mailbox() : fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Mailbox() { ::close(fd); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  std::mutex mutex;
  std::vector<Datagram> waiting;
  std::uint64_t lost = 0;
  const int fd;
};

class HubPort final : public Port {
 public:
  HubPort(Hub& hub, const Gid& address, std::shared_ptr<Hub::Mailbox> mailbox)
      : hub_(hub), address_(address), mailbox_(std::move(mailbox)) {}
  ~HubPort() override { hub_.close(address_); }

  bool receive(DatagramSink& sink, bool /*everywhere*/) override {
    taken_.clear();
    {
      const std::lock_guard guard(mailbox_->mutex);
      taken_.swap(mailbox_->waiting);
      if (!taken_.empty()) {
        std::uint64_t count;
        [[maybe_unused]] const ssize_t n = ::read(mailbox_->fd, &count, sizeof count);
      }
    }
    for (const Datagram& d : taken_) sink.on_datagrams(d.path, d.identification, d.bytes, d.bytes.size());
    return !taken_.empty();
  }

  void send(std::span<const roce::Train* const> trains) override {
    for (const roce::Train* train : trains) {
      const std::shared_ptr<Hub::Mailbox> to = hub_.find(train->path().destination);
      if (to == nullptr) continue;
      const std::lock_guard guard(to->mutex);
      const bool was_empty = to->waiting.empty();
      for (std::uint32_t i = 0; i < train->datagrams(); ++i) {
        if (to->waiting.size() == kMailboxDatagrams) {
          ++to->lost;
          continue;
        }
        Datagram& d = to->waiting.emplace_back();
        d.path = train->path();
        d.identification = static_cast<std::uint16_t>(i);
        train->flatten(i, d.bytes);
      }
      const std::uint64_t one = 1;
      if (was_empty) [[maybe_unused]]
        const ssize_t n = ::write(to->fd, &one, sizeof one);
    }
  }

  std::span<const int> fds() const override { return {&mailbox_->fd, 1}; }
  roce::TrainLimits limits() const override { return {}; }
  std::string hint_about(const Gid& peer) override {
    return hub_.find(peer) == nullptr ? "no device of this hub has that address" : std::string{};
  }
  std::vector<std::string> explain() const override {
    return {"address " + address_.to_string() + " of a network inside this process"};
  }
  std::vector<NamedCounter> counters() override {
    const std::lock_guard guard(mailbox_->mutex);
    return {{"loopback_lost", mailbox_->lost}};
  }

 private:
  Hub& hub_;
  const Gid address_;
  const std::shared_ptr<Hub::Mailbox> mailbox_;
  std::vector<Datagram> taken_;
};

Hub::Hub() = default;
Hub::~Hub() = default;

std::shared_ptr<Hub::Mailbox> Hub::find(const Gid& address) {
  const std::lock_guard guard(mutex_);
  const auto found = mailboxes_.find(address);
  return found == mailboxes_.end() ? nullptr : found->second;
}

void Hub::close(const Gid& address) {
  const std::lock_guard guard(mutex_);
  mailboxes_.erase(address);
}

Result<std::unique_ptr<HostDevice>> Hub::open(NicConfig config, std::unique_ptr<RandomSource> random,
                                              HostDevice::Options options) {
  auto mailbox = std::make_shared<Mailbox>();
  {
    const std::lock_guard guard(mutex_);
    if (!mailboxes_.emplace(config.address, mailbox).second)
      return Error{ErrorCode::AddressInUse, "a device of this hub has address " + config.address.to_string()};
  }
  config.source_ports = {0xc000};
  auto port = std::make_unique<HubPort>(*this, config.address, std::move(mailbox));
  return HostDevice::open(config, std::move(random), std::move(port), std::move(options));
}

}  // namespace verbena::soft::loopback
