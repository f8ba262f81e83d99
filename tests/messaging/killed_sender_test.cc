// SPDX-License-Identifier: Apache-2.0
// Senders whose processes are killed in the middle of long messages: what came of them is whole and in order, the half
// one never appears, and other senders go on.
#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "../api/test_process.h"
#include "base/sanitizer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

// Who is silent for eight times 4.096 us * 2^kSenderTimeout is lost: a second, or four where all is slow.
constexpr std::uint8_t kSenderTimeout = kSanitized ? 17 : 15;
constexpr std::uint32_t kLongBytes = kSanitized ? 1 << 17 : 1 << 20;
constexpr std::uint32_t kHonestSenders = 2, kKilledSenders = 3;  // peers, in that order
constexpr std::uint32_t kHonestMessages = 60;

// A long message in which every word says which one of whom it is: bytes of another one cannot hide.
using Words = std::vector<std::uint64_t>;
std::uint64_t word_of(std::uint32_t who, std::uint32_t n) { return std::uint64_t{who + 1} << 32 | (n + 1); }
bool is_long_message(const Message& message, std::uint32_t n) {
  const auto bytes = message.bytes();
  if (bytes.size() != kLongBytes) return false;
  const std::uint64_t expected = word_of(message.peer(), n);
  for (std::size_t at = 0; at < bytes.size(); at += 8)
    if (std::memcmp(bytes.data() + at, &expected, 8) != 0) return false;
  return true;
}

Options options_of_senders(const Way& way) {
  Options options{.kind = way.kind,
                  .max_message_bytes = kLongBytes,
                  .depth = 8,
                  .ring_bytes = 8 * kLongBytes,
                  .max_senders = kHonestSenders + kKilledSenders};
  options.connection.reliability.timeout = kSenderTimeout;
  options.connection.keep_alive = Duration::milliseconds(100);
  return options;
}

// The life of one that is killed.
void send_for_ever(const Way& way, std::uint32_t who, const std::function<void(const std::string&)>& say) {
  Device device = must(Device::open(OpenOptions{.path = way.path}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  ConnectionRequest request = must(listener.wait_request(kPatience));
  Sender sender = must(Sender::accept(engine, std::move(request), options_of_senders(way)));
  Words words(kLongBytes / 8);
  for (std::uint32_t n = 0;; ++n) {
    std::fill(words.begin(), words.end(), word_of(who, n));
    if (!sender.send(std::as_bytes(std::span(words)), kPatience)) break;
  }
  ::pause();
}

class KilledSender : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, KilledSender, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(KilledSender, leaves_whole_messages_in_order_and_the_others_alone) {
  const Way way = GetParam();
  std::vector<std::unique_ptr<Process>> killed;
  std::vector<std::string> addresses;
  for (std::uint32_t who = kHonestSenders; who < kHonestSenders + kKilledSenders; ++who) {
    killed.push_back(std::make_unique<Process>([&](const auto& say) { send_for_ever(way, who, say); }));
    addresses.push_back(killed.back()->hear());
  }
  Ends ends(way, options_of_senders(way), kSenderTimeout);
  std::map<messaging::PeerId, std::string> ended;
  ends.receiver->on_peer_end([&](messaging::PeerId peer, const Result<void>& how) {
    EXPECT_TRUE(ended.emplace(peer, how ? "well" : how.error().to_string()).second) << peer;
  });
  std::vector<Sender> honest;
  for (std::uint32_t i = 0; i < kHonestSenders; ++i) honest.push_back(ends.connect());
  for (std::uint32_t i = 0; i < kKilledSenders; ++i)
    EXPECT_EQ(must(ends.receiver->connect(addresses[i])), kHonestSenders + i);

  std::array<std::uint32_t, kHonestSenders> sent{};
  std::array<std::uint32_t, kHonestSenders + kKilledSenders> got{};
  const auto size_of = [](std::uint32_t n) { return n % 8 == 7 ? kLongBytes : n * 13; };
  const auto take = [&](const Message& message) {
    const auto who = static_cast<std::uint32_t>(message.peer());
    const std::uint32_t n = got.at(who)++;
    if (who < kHonestSenders) {
      EXPECT_EQ(message.bytes().size(), size_of(n));
      EXPECT_TRUE(is_message(message, n, size_of(n), who)) << who << " " << n;
      return;
    }
    EXPECT_TRUE(is_long_message(message, n)) << who << " " << n;
    EXPECT_FALSE(ended.contains(message.peer()));
    Process& sender = *killed[who - kHonestSenders];
    if (got[who] != 4 * (who - kHonestSenders) + 3) return;  // another moment for each
    sender.signal(SIGKILL);
    EXPECT_EQ(sender.wait(), -SIGKILL);
  };
  const auto step = [&] {
    for (std::uint32_t i = 0; i < kHonestSenders; ++i)
      if (sent[i] < kHonestMessages && honest[i].try_send(text_of_message(i, sent[i], size_of(sent[i])))) ++sent[i];
    if (const auto message = ends.receiver->try_receive()) take(*message);
    return got[0] == kHonestMessages && got[1] == kHonestMessages && ended.size() == kKilledSenders;
  };
  // Nothing wakes a receiver whose memory is written: it looks, and drives the engine meanwhile.
  bool over = false;
  for (const Instant end = ends.engine.now() + kPatience; !over && ends.engine.now() < end;) over = step();
  EXPECT_TRUE(over)
      << got[0] << " " << got[1] << " came of those that live, " << ended.size() << " ends were told";
  for (std::uint32_t who = 0; who < kHonestSenders + kKilledSenders; ++who)
    EXPECT_EQ(ended.contains(who), who >= kHonestSenders) << who;
  for (const auto& [peer, how] : ended)
    EXPECT_THAT(how, ::testing::ContainsRegex("^(RetryExceeded|ConnectionLost|Disconnected)")) << peer;
  EXPECT_FALSE(ends.receiver->try_receive());
  EXPECT_EQ(ends.receiver->peers(), kHonestSenders);
  for (Sender& sender : honest) must(sender.close(kPatience));
}

}  // namespace
}  // namespace verbena
