// SPDX-License-Identifier: Apache-2.0
// A program tested in virtual time: a server and a client on two hosts of a network that loses, and that is
// cut for a while. What takes minutes there is over at once, and a seed that found a mistake finds it again.
//
//   virtual_time          the same program under ten seeds
//   virtual_time SEED     under that one
#include <charconv>
#include <string_view>

#include "or_exit.h"
#include "verbena/testing/virtual_network.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;
using testing::VirtualHost, testing::VirtualNetwork;

constexpr int kQuestions = 1000;

// ---- The program. It takes an engine, waits by co_await and sleeps on the engine, in whatever time that is.

Task<void> answer(ProgressEngine& engine) {
  Listener listener = or_exit(Listener::create(engine, {.port = 7471}));
  Connection client = or_exit(co_await listener.async_accept());
  MemoryRegion number = or_exit(engine.device().allocate_memory(sizeof(int)));
  for (;;) {
    auto question = co_await client.receive(number.local());
    if (!question) co_return;  // the client has closed
    *reinterpret_cast<int*>(number.data()) *= 2;
    auto sent = co_await client.send(number.local());
    if (!sent) co_return;
  }
}

// How many answers were right.
Task<Result<int>> ask(ProgressEngine& engine, std::string_view server) {
  auto connection = co_await Connection::async_connect(engine, server);
  if (!connection) co_return connection.error();
  MemoryRegion question = or_exit(engine.device().allocate_memory(sizeof(int)));
  MemoryRegion answer = or_exit(engine.device().allocate_memory(sizeof(int)));
  int right = 0;
  for (int i = 0; i < kQuestions; ++i) {
    *reinterpret_cast<int*>(question.data()) = i;
    Operation answered = connection->receive(answer.local());
    auto sent = co_await connection->send(question.local());
    if (!sent) co_return sent.error();
    auto got = co_await answered;
    if (!got) co_return got.error();
    if (*reinterpret_cast<int*>(answer.data()) == 2 * i) ++right;
    co_await engine.sleep(Duration::milliseconds(200));
  }
  auto closed = co_await connection->async_close();
  if (!closed) co_return closed.error();
  co_return right;
}

// ---- Its test.

std::uint64_t run(std::uint64_t seed) {
  VirtualNetwork network =
      or_exit(VirtualNetwork::create(seed, {.loss = 0.05, .duplicate = 0.02, .corrupt = 0.01}));
  VirtualHost server = or_exit(network.add_host()), client = or_exit(network.add_host());
  server.engine().spawn(answer(server.engine()));
  // For less than half a second: a connection lives through that.
  network.after(Duration::seconds(60), [&] { network.cut(server, client); });
  network.after(Duration::milliseconds(60'300), [&] { network.mend(); });

  const Instant begin = network.now();
  const int right = or_exit(network.run(client, ask(client.engine(), "10.0.0.1:7471")));
  const auto seen = network.counters();
  const auto count = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf("seed %llu: %d of %d answers are right after %lld s; ", count(seed), right, kQuestions,
              static_cast<long long>((network.now() - begin).ns / 1'000'000'000));
  std::printf("of %llu datagrams %llu were lost and %llu damaged\n", count(seen.sent),
              count(seen.lost + seen.cut_off), count(seen.corrupted));
  if (right != kQuestions) std::exit(1);
  return network.hash();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  const bool help = word == "--help" || word == "-h";
  std::uint64_t seed = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), seed);
  if (help || argc > 2 || (argc == 2 && (read.ec != std::errc{} || read.ptr != word.data() + word.size()))) {
    std::fprintf(help ? stdout : stderr, "usage: %s [SEED]\n", argv[0]);
    return help ? 0 : 2;
  }
  if (argc == 2) return run(seed), 0;
  for (seed = 1; seed <= 10; ++seed) run(seed);
  const bool same = run(1) == run(1);
  std::printf("%s\n", same ? "one seed gives one run, datagram by datagram" : "one seed gave two runs");
  return same ? 0 : 1;
}
