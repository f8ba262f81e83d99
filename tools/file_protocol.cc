// SPDX-License-Identifier: Apache-2.0
#include "tools/file_protocol.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr std::string_view kMessageNames[] = {
    "Get",       "Put",          "Begin",   "Failed", "File", "Chunk",   "FileEnd", "FileAbort",
    "Directory", "DirectoryEnd", "Skipped", "End",    "Ack",  "Refused", "Done"};
static_assert(std::size(kMessageNames) == std::variant_size_v<Message>);

Error broken(std::string why) { return Error(ErrorCode::ProtocolError, "file protocol: " + std::move(why)); }

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}

  template <class T>
  Writer& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      out_[at_++] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
    return *this;
  }
  Writer& bytes(std::span<const std::byte> from) {
    std::copy(from.begin(), from.end(), out_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ += from.size();
    return *this;
  }
  Writer& text(std::string_view from, std::size_t limit) {
    from = from.substr(0, limit);
    number(static_cast<std::uint16_t>(from.size()));
    return bytes(std::as_bytes(std::span(from)));
  }
  std::size_t size() const { return at_; }

 private:
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

// Reads on after a mistake, zeros: failure() tells at the end, once.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : left_(in) {}

  template <class T>
  T number() {
    std::uint64_t value = 0;
    const auto from = take(sizeof(T));
    for (std::size_t i = from.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
    return static_cast<T>(value);
  }
  // At most `limit`, or it is a mistake.
  template <class T>
  T number_up_to(T limit, std::string_view what) {
    const T value = number<T>();
    if (value > limit) fail(std::string(what) + " is out of range");
    return value;
  }
  bool flag(std::string_view what) { return number_up_to<std::uint8_t>(1, what) == 1; }
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) {
      fail("the message ends too soon");
      return {};
    }
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  std::string text(std::size_t limit, std::string_view what) {
    const auto length = number<std::uint16_t>();
    if (length > limit) fail(std::string(what) + " is too long");
    const auto from = take(length);
    std::string out(from.size(), '\0');
    if (!from.empty()) std::memcpy(out.data(), from.data(), from.size());
    return out;
  }
  std::string name() {
    std::string out = text(kMaxNameBytes, "a name");
    if (!out.empty() && !is_safe_name(out)) fail("a name is not a plain name");
    return out;
  }
  std::string path() {
    std::string out = text(kMaxPathBytes, "the path");
    if (auto split = split_path(out); !split) fail(split.error().context());
    return out;
  }
  ErrorCode code() {
    const auto value = number<std::uint16_t>();
    if (value < 1 || value > static_cast<std::uint16_t>(ErrorCode::Internal)) fail("no such error code");
    return static_cast<ErrorCode>(value);
  }
  RootKind kind() {
    const auto value = number<std::uint8_t>();
    if (value != 1 && value != 2) fail("neither file nor directory");
    return static_cast<RootKind>(value);
  }
  template <std::size_t n, class Element>
  void fill(std::array<Element, n>& out) {
    const auto from = take(n);
    if (!from.empty()) std::memcpy(out.data(), from.data(), n);
  }
  void fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
  }
  const std::string& failure() {
    if (failure_.empty() && !left_.empty()) failure_ = "bytes are left over";
    return failure_;
  }

 private:
  std::span<const std::byte> left_;
  std::string failure_;
};

using namespace message;

void write(Writer& w, const Get& m) { w.text(m.path, kMaxPathBytes); }
void read(Reader& r, Get& m) { m.path = r.path(); }

void write(Writer& w, const Put& m) {
  w.number<std::uint8_t>(m.force ? 1 : 0).number<std::uint8_t>(m.into ? 1 : 0);
  w.number(static_cast<std::uint8_t>(m.kind)).text(m.path, kMaxPathBytes).text(m.name, kMaxNameBytes);
}
void read(Reader& r, Put& m) {
  m.force = r.flag("force");
  m.into = r.flag("into");
  m.kind = r.kind();
  m.path = r.path();
  m.name = r.name();
}

void write(Writer& w, const Begin& m) {
  w.number(static_cast<std::uint8_t>(m.kind)).number(m.slots).number(m.slot_bytes).bytes(m.memory);
  w.number(m.total_files).number(m.total_bytes);
}
void read(Reader& r, Begin& m) {
  m.kind = r.kind();
  m.slots = r.number_up_to(kMaxSlots, "the number of slots");
  m.slot_bytes = r.number_up_to(kMaxSlotBytes, "the size of a slot");
  if (m.slots == 0 || m.slot_bytes < kMinSlotBytes) r.fail("no slots, or slots too small");
  r.fill(m.memory);
  m.total_files = r.number<std::uint64_t>();
  m.total_bytes = r.number<std::uint64_t>();
}

void write(Writer& w, const Failed& m) {
  w.number(static_cast<std::uint16_t>(m.code)).text(m.text, kMaxTextBytes);
}
void read(Reader& r, Failed& m) {
  m.code = r.code();
  m.text = r.text(kMaxTextBytes, "a text");
}

constexpr std::uint16_t kModeMask = 0777;

void write(Writer& w, const File& m) {
  w.number(m.id).number(m.mode).number(m.size).text(m.name, kMaxNameBytes);
}
void read(Reader& r, File& m) {
  m.id = r.number<std::uint32_t>();
  m.mode = r.number_up_to(kModeMask, "a mode");
  m.size = r.number_up_to(kMaxFileBytes, "a file's size");
  m.name = r.name();
}

void write(Writer& w, const Chunk& m) { w.number(m.slot).number(m.length); }
void read(Reader& r, Chunk& m) {
  m.slot = r.number_up_to<std::uint16_t>(kMaxSlots - 1, "a slot");
  m.length = r.number_up_to(kMaxSlotBytes, "a chunk");
  if (m.length == 0) r.fail("a chunk is empty");
}

void write(Writer& w, const FileEnd& m) { w.bytes(std::as_bytes(std::span(m.digest))); }
void read(Reader& r, FileEnd& m) { r.fill(m.digest); }

void write(Writer& w, const FileAbort& m) {
  w.number(static_cast<std::uint16_t>(m.code)).text(m.text, kMaxTextBytes);
}
void read(Reader& r, FileAbort& m) {
  m.code = r.code();
  m.text = r.text(kMaxTextBytes, "a text");
}

void write(Writer& w, const Directory& m) { w.number(m.id).number(m.mode).text(m.name, kMaxNameBytes); }
void read(Reader& r, Directory& m) {
  m.id = r.number<std::uint32_t>();
  m.mode = r.number_up_to(kModeMask, "a mode");
  m.name = r.name();
}

void write(Writer&, const DirectoryEnd&) {}
void read(Reader&, DirectoryEnd&) {}

void write(Writer& w, const Skipped& m) {
  w.number<std::uint8_t>(m.is_failure ? 1 : 0).number(static_cast<std::uint16_t>(m.code));
  w.text(m.name, kMaxNameBytes).text(m.text, kMaxTextBytes);
}
void read(Reader& r, Skipped& m) {
  m.is_failure = r.flag("failure");
  m.code = r.code();
  m.name = r.name();
  m.text = r.text(kMaxTextBytes, "a text");
}

void write(Writer&, const End&) {}
void read(Reader&, End&) {}

void write(Writer& w, const Ack& m) { w.number(m.processed); }
void read(Reader& r, Ack& m) { m.processed = r.number<std::uint32_t>(); }

void write(Writer& w, const Refused& m) {
  w.number(m.id).number(static_cast<std::uint16_t>(m.code)).text(m.text, kMaxTextBytes);
}
void read(Reader& r, Refused& m) {
  m.id = r.number<std::uint32_t>();
  m.code = r.code();
  m.text = r.text(kMaxTextBytes, "a text");
}

void write(Writer& w, const Done& m) { w.number(m.files).number(m.bytes).number(m.failures); }
void read(Reader& r, Done& m) {
  m.files = r.number<std::uint64_t>();
  m.bytes = r.number<std::uint64_t>();
  m.failures = r.number<std::uint64_t>();
}

// Reads the body of type `wanted`, the index in Message.
template <std::size_t index = 0>
void read_body(Reader& reader, std::size_t wanted, Message& out) {
  if constexpr (index < std::variant_size_v<Message>) {
    if (wanted == index) read(reader, out.emplace<index>());
    else read_body<index + 1>(reader, wanted, out);
  }
}

constexpr std::array<std::byte, 4> kGreetingMagic{std::byte{'V'}, std::byte{'B'}, std::byte{'F'}, std::byte{'T'}};

}  // namespace

std::string_view name_of(const Message& m) { return kMessageNames[m.index()]; }

bool is_stream(const Message& m) {
  return std::visit(
      [](const auto& one) {
        using T = std::decay_t<decltype(one)>;
        return std::is_same_v<T, File> || std::is_same_v<T, Chunk> || std::is_same_v<T, FileEnd> ||
               std::is_same_v<T, FileAbort> || std::is_same_v<T, Directory> || std::is_same_v<T, DirectoryEnd> ||
               std::is_same_v<T, Skipped> || std::is_same_v<T, End>;
      },
      m);
}

Result<Message> parse_message(std::span<const std::byte> bytes) {
  Reader header(bytes);
  const auto first = header.number<std::uint8_t>();
  const auto second = header.number<std::uint8_t>();
  const auto version = header.number<std::uint8_t>();
  const auto type = header.number<std::uint8_t>();
  const auto length = header.number<std::uint32_t>();
  if (bytes.size() < kHeaderBytes) return broken("a message of " + std::to_string(bytes.size()) + " bytes");
  if (first != 'V' || second != 'F') return broken("a message that is none");
  if (version != kFileProtocolVersion) return broken("a message of version " + std::to_string(version));
  if (bytes.size() > kMaxMessageBytes) return broken("a message of " + std::to_string(bytes.size()) + " bytes");
  if (length != bytes.size() - kHeaderBytes) return broken("a message whose length is wrong");
  if (type == 0 || type > std::variant_size_v<Message>) return broken("a message of type " + std::to_string(type));
  Message out;
  Reader body(bytes.subspan(kHeaderBytes));
  read_body(body, type - 1u, out);
  if (!body.failure().empty()) return broken(std::string(kMessageNames[type - 1u]) + ": " + body.failure());
  return out;
}

std::size_t emit_message(const Message& m, std::span<std::byte, kMaxMessageBytes> out) {
  Writer body(out.subspan(kHeaderBytes));
  std::visit([&](const auto& one) { write(body, one); }, m);
  Writer header(out.first(kHeaderBytes));
  header.number<std::uint8_t>('V').number<std::uint8_t>('F').number(kFileProtocolVersion);
  header.number(static_cast<std::uint8_t>(m.index() + 1)).number(static_cast<std::uint32_t>(body.size()));
  return kHeaderBytes + body.size();
}

std::array<std::byte, 8> file_greeting() {
  std::array<std::byte, 8> out{};
  std::copy(kGreetingMagic.begin(), kGreetingMagic.end(), out.begin());
  out[4] = std::byte{kFileProtocolVersion};
  return out;
}

Result<void> check_file_greeting(std::span<const std::byte> data) {
  if (data.size() < 8 || !std::equal(kGreetingMagic.begin(), kGreetingMagic.end(), data.begin()))
    return Error(ErrorCode::ProtocolError, "the peer is no verbena serve, get or put");
  const auto version = std::to_integer<unsigned>(data[4]);
  if (version != kFileProtocolVersion)
    return Error(ErrorCode::ProtocolError, "the peer speaks version " + std::to_string(version) +
                                               " of the file protocol, we speak " +
                                               std::to_string(kFileProtocolVersion));
  return {};
}

}  // namespace verbena::tools
