// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/capture.h"

#include <cerrno>
#include <ctime>
#include <utility>

#include "soft/wire/ip.h"

namespace verbena::soft {

namespace {

constexpr std::size_t kWriteAt = 256 * 1024;

std::int64_t read_clock(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Instant monotonic_now() { return {read_clock(CLOCK_MONOTONIC)}; }

Result<std::unique_ptr<Capture>> Capture::open(const std::string& file, const std::string& interface_name) {
  std::FILE* stream = std::fopen(file.c_str(), "wbe");
  if (stream == nullptr) {
    Error error = Error::from_errno(errno, "open capture file " + file);
    // NotFound is said of devices alone.
    if (error.code() != ErrorCode::NotFound) return error;
    return Error(ErrorCode::IoError, error.context(), error.native(), error.domain());
  }
  return std::unique_ptr<Capture>(new Capture(stream, file, interface_name));
}

Capture::Capture(std::FILE* file, const std::string& file_name, const std::string& interface_name)
    : file_(file),
      file_name_(file_name),
      writer_(interface_name, wire::PcapngWriter::Link::RawIp),
      unix_offset_ns_(read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC)) {
  writer_.begin(pending_);
  flush();
}

Capture::~Capture() {
  if (file_ != nullptr) static_cast<void>(close());
}

Result<void> Capture::close() {
  flush();
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail();
  if (failure_) return *failure_;
  return {};
}

// With errno. The first failure is the one to tell.
void Capture::fail() {
  if (!failure_) failure_ = Error::from_errno(errno, "the capture " + file_name_ + " is incomplete");
}

void Capture::flush() {
  if (pending_.empty()) return;
  if (!failure_ &&
      (std::fwrite(pending_.data(), 1, pending_.size(), file_) != pending_.size() || std::fflush(file_) != 0))
    fail();
  pending_.clear();
}

void Capture::write(Instant now, const wire::Path& path, std::uint16_t identification,
                    std::span<const std::byte> datagram, wire::PcapngWriter::Direction direction) {
  ip_.clear();
  wire::append_ip(path, identification, datagram, true, ip_);
  writer_.packet(static_cast<std::uint64_t>(now.ns + unix_offset_ns_), ip_, direction, pending_);
  if (pending_.size() >= kWriteAt) flush();
}

void Capture::received(Instant now, const wire::Path& path, std::optional<std::uint16_t> identification,
                       std::span<const std::byte> bytes, std::size_t segment_bytes) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(segment_bytes, bytes.size()))) {
    const auto datagram = bytes.first(std::min(segment_bytes, bytes.size()));
    std::uint16_t found = identification.value_or(0);
    verifier_.check(path, identification, datagram, &found);
    write(now, path, found, datagram, wire::PcapngWriter::Direction::Inbound);
  }
}

void Capture::sent(Instant now, const roce::Train& train) {
  for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
    train.flatten(i, flat_);
    write(now, train.path(), static_cast<std::uint16_t>(i), flat_, wire::PcapngWriter::Direction::Outbound);
  }
}

}  // namespace verbena::soft
