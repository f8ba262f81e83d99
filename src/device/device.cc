// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/device.h"

#include <cstdio>

#include "device/device_state.h"

namespace verbena {

namespace {

// What `variable` says where the program does not.
Result<void> take_users(const char* variable, std::optional<std::vector<std::uint32_t>>& users) {
  const auto text = environment_value(variable);
  if (!text || users) return {};
  users = parse_users(*text);
  if (users) return {};
  return Error(ErrorCode::InvalidArgument, std::string("open device: ") + variable + " is '" + *text +
                                               "'; set it to numbers of users, with commas between");
}

// "soft-lo (127.0.0.1), soft-eth0 (192.0.2.1: no permission)"
std::string describe_devices() {
  std::string text;
  for (const DeviceInfo& info : Device::list()) {
    if (!text.empty()) text += ", ";
    text += info.name + " (" + info.address.to_string() + (info.usable ? ")" : ": " + info.reason + ")");
  }
  return text.empty() ? "none" : text;
}

Error of_another_device(const char* made, const char* from) {
  return {ErrorCode::InvalidArgument, std::string("create ") + made + ": its " + from + " is of another device"};
}

DeviceEvent to_public(const provider::Event& event) {
  const bool completion = event.kind == provider::Event::Kind::Completion;
  return {completion ? DeviceEvent::Kind::Completion : DeviceEvent::Kind::Async, event.async, event.qpn,
          static_cast<std::uint32_t>(event.cq), static_cast<std::uint32_t>(event.srq)};
}

}  // namespace

Device::Device(std::unique_ptr<DeviceState> state) : state_(std::move(state)) { settle(); }
Device::Device(Device&& other) noexcept : state_(std::move(other.state_)) { settle(); }
Device& Device::operator=(Device&& other) noexcept {
  state_ = std::move(other.state_);
  settle();
  return *this;
}
// What was made with it finds it where it is now.
void Device::settle() {
  if (state_ != nullptr) state_->owner = this;
}
Device::~Device() = default;

std::vector<DeviceInfo> Device::list() {
  std::vector<DeviceInfo> all;
  OpenOptions options;
  if (const auto users = environment_value("VERBENA_ADDRESS_USERS")) options.address_users = parse_users(*users);
  for (const provider::Provider* provider : provider::providers())
    for (DeviceInfo& info : provider->list(options)) all.push_back(std::move(info));
  return all;
}

Result<Device> Device::open(const OpenOptions& options) {
  OpenOptions told = options;
  if (const auto path = environment_value("VERBENA_PATH"); path && !told.path) {
    told.path = parse_path_choice(*path);
    if (!told.path)
      return Error(ErrorCode::InvalidArgument,
                   "open device: VERBENA_PATH is '" + *path + "'; set it to auto, roce or local");
  }
  if (const auto copy = environment_value("VERBENA_LOCAL_COPY"); copy && !told.pull) {
    if (*copy != "auto" && *copy != "staged")
      return Error(ErrorCode::InvalidArgument,
                   "open device: VERBENA_LOCAL_COPY is '" + *copy + "'; set it to auto or staged");
    told.pull = *copy == "auto";
  }
  if (!told.local_dir) told.local_dir = environment_value("VERBENA_LOCAL_DIR");
  if (auto taken = take_users("VERBENA_LOCAL_USERS", told.local_users); !taken) return std::move(taken).error();
  if (auto taken = take_users("VERBENA_ADDRESS_USERS", told.address_users); !taken) return std::move(taken).error();
  const auto wanted = options.pcap_file.empty() ? environment_value("VERBENA_PCAP") : std::nullopt;
  if (!wanted) return open_as_told(told);
  const auto file = file_of_own(*wanted);
  if (!file) return file.error();
  told.pcap_file = *file;
  auto device = open_as_told(told);
  if (!device) static_cast<void>(std::remove(file->c_str()));
  return device;
}

Result<Device> Device::open_as_told(const OpenOptions& options) {
  std::optional<Error> first;
  const auto counter_folder = environment_value("VERBENA_COUNTERS");
  OpenOptions kept = options;
  if (counter_folder && options.single_threaded) {  // a thread of ours looks at it
    kept.single_threaded = false;
    kept.service_thread = false;
  }
  for (const provider::Provider* provider : provider::providers()) {
    auto context = provider->open(kept);
    if (context) {
      Device device{std::make_unique<DeviceState>(std::move(*context))};
      auto domain = device.create_protection_domain();
      if (!domain) return domain.error();
      device.state_->domain.emplace(std::move(*domain));
      if (counter_folder) {
        auto file = CounterFile::create(*counter_folder, device.state_->context());
        if (!file) return std::move(file).error();
        device.state_->counter_file = std::move(*file);
      }
      return device;
    }
    if (!first || first->code() == ErrorCode::NotFound) first = context.error();
  }
  if (first && first->code() != ErrorCode::NotFound) return *first;
  return Error(ErrorCode::NotFound, "open device '" + options.device + "': there are " + describe_devices());
}

const DeviceInfo& Device::info() const { return state_->context().info(); }
std::vector<std::string> Device::explain() const { return state_->context().explain(); }
std::vector<NamedCounter> Device::counters() const { return state_->context().counters(); }
Result<void> Device::close_capture() { return state_->context().close_capture(); }

ProtectionDomain& Device::protection_domain() { return *state_->domain; }

Result<ProtectionDomain> Device::create_protection_domain() {
  auto id = state_->context().create_pd();
  if (!id) return id.error();
  return ProtectionDomain{state_->context(), static_cast<std::uint32_t>(*id)};
}

Result<CompletionQueue> Device::create_completion_queue(std::uint32_t capacity) {
  auto id = state_->context().create_cq({capacity});
  if (!id) return id.error();
  return CompletionQueue{state_->context(), static_cast<std::uint32_t>(*id)};
}

Result<SharedReceiveQueue> Device::create_shared_receive_queue(const ProtectionDomain& domain,
                                                               const SharedReceiveQueueOptions& options) {
  if (!domain.is_of(state_->context())) return of_another_device("a shared receive queue", "protection domain");
  auto id = state_->context().create_srq(
      {provider::PdId{domain.id()}, options.max_requests, options.max_segments});
  if (!id) return id.error();
  return SharedReceiveQueue{state_->context(), static_cast<std::uint32_t>(*id)};
}

Result<QueuePair> Device::create_queue_pair(const ProtectionDomain& domain, CompletionQueue& send,
                                            CompletionQueue& receive, const QueuePairOptions& options) {
  provider::Context& context = state_->context();
  const SharedReceiveQueue* const shared = options.shared_receive_queue;
  if (!domain.is_of(context)) return of_another_device("a queue pair", "protection domain");
  if (!send.is_of(context) || !receive.is_of(context)) return of_another_device("a queue pair", "completion queue");
  if (shared != nullptr && !shared->is_of(context)) return of_another_device("a queue pair", "shared receive queue");
  auto made = context.create_qp({options.type, provider::PdId{domain.id()}, provider::CqId{send.id()},
                                 provider::CqId{receive.id()}, options.capabilities, options.signal_all,
                                 provider::SrqId{shared != nullptr ? shared->id() : 0}});
  if (!made) return made.error();
  QueuePair pair;
  pair.context_ = &context;
  pair.ops_ = context.qp(made->qpn);
  pair.qpn_ = made->qpn;
  pair.type_ = options.type;
  pair.capabilities_ = made->capabilities;
  const auto psn = static_cast<std::uint32_t>(context.random() >> 40);
  pair.address_ = {context.info().address, made->qpn, Psn{psn}, context.info().active_mtu};
  return pair;
}

bool Device::progress() { return state_->context().progress(); }

std::optional<DeviceEvent> Device::poll_event() {
  while (auto event = state_->context().poll_event()) {
    const bool ours =
        event->kind == provider::Event::Kind::Completion || event->kind == provider::Event::Kind::Async;
    if (ours) return to_public(*event);
  }
  return std::nullopt;
}

void Device::wait_event(Instant until) { state_->context().wait_event(until); }
int Device::event_fd() const { return state_->context().event_fd(); }
Instant Device::now() const { return state_->context().now(); }

}  // namespace verbena
