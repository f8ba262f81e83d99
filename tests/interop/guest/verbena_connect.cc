// SPDX-License-Identifier: Apache-2.0
// The counterpart of kernel_connect on Verbena: the same words on the command line, the same lines printed.
//
//   verbena_connect DEVICE listen PORT accept|stay|reject TEXT     DEVICE: the address to use
//
// With `stay` it goes on answering repetitions after the end of the connection, as a kernel would, until it is killed.
//   verbena_connect DEVICE connect HOST:PORT TEXT
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::size_t kMessageBytes = 32;

[[noreturn]] void fail(const char* what, const Error& error) {
  std::printf("%s %s\n", what, error.to_string().c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result, const char* what) {
  if (!result) fail(what, result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::string text_of(std::span<const std::byte> bytes) {
  const char* text = reinterpret_cast<const char*>(bytes.data());
  return {text, strnlen(text, bytes.size())};
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span{text}); }

void receive(Operation& message, const MemoryRegion& inbox) {
  must(message.wait(), "broken");
  std::printf("received %s\n", text_of({inbox.data(), inbox.size()}).c_str());
}

void send(Connection& connection, std::string text) {
  text.resize(kMessageBytes);
  must(connection.send_inline(bytes_of(text)).wait(), "broken");
}

// An emulated peer may stop for longer than a real one.
ConnectionOptions patient() {
  ConnectionOptions options;
  options.connect_timeout = Duration::seconds(60);
  options.reliability.timeout = 18;  // 1.07 s
  return options;
}

int listen(ProgressEngine& engine, const MemoryRegion& inbox, std::uint16_t port, std::string_view answer,
           const std::string& text) {
  ListenOptions options;
  options.port = port;
  Listener listener = must(Listener::create(engine, options), "failed");
  std::printf("listening\n");
  ConnectionRequest request = must(listener.wait_request(), "failed");
  std::printf("request %s\n", text_of(request.private_data()).c_str());
  if (answer == "reject") {
    must(request.reject(bytes_of(text)), "failed");
    std::printf("rejected\n");
    return 0;
  }
  Connection prepared = must(Connection::prepare(engine, patient()), "failed");
  Operation message = prepared.receive(inbox.local());
  Connection connection = must(request.accept(std::move(prepared), bytes_of(text)), "failed");
  must(connection.wait_established(Duration::seconds(60)), "failed");
  std::printf("established\n");
  receive(message, inbox);
  send(connection, "pong");
  engine.run_until([&] { return connection.closed(); });
  const Result<void> status = connection.status();
  if (connection.phase() == ConnectionPhase::Broken) fail("broken", status.error());
  std::printf("disconnected\n");
  if (answer == "stay") engine.run_until([] { return false; });
  return 0;
}

int connect(ProgressEngine& engine, const MemoryRegion& inbox, const char* address, const std::string& text) {
  Connection connection = must(Connection::prepare(engine, patient()), "failed");
  Operation message = connection.receive(inbox.local());
  if (const Result<void> done = connection.connect_to(address, bytes_of(text)); !done) {
    std::printf("%s | %s\n", done.error().to_string().c_str(), text_of(connection.private_data()).c_str());
    return 3;
  }
  std::printf("established %s\n", text_of(connection.private_data()).c_str());
  send(connection, "ping");
  receive(message, inbox);
  must(connection.close(Duration::seconds(30)), "failed");
  std::printf("disconnected\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = argc > 2 ? argv[2] : "";
  if ((mode != "listen" || argc != 6) && (mode != "connect" || argc != 5)) {
    std::fprintf(stderr,
                 "usage: verbena_connect DEVICE listen PORT accept|stay|reject TEXT\n"
                 "       verbena_connect DEVICE connect HOST:PORT TEXT\n");
    return 2;
  }
  Device device = must(Device::open(argv[1]), "failed");
  ProgressEngine engine = must(ProgressEngine::create(device), "failed");
  const MemoryRegion inbox = must(device.allocate_memory(kMessageBytes), "failed");
  if (mode == "connect") return connect(engine, inbox, argv[3], argv[4]);
  return listen(engine, inbox, static_cast<std::uint16_t>(std::atoi(argv[3])), argv[4], argv[5]);
}
