// SPDX-License-Identifier: Apache-2.0
// Two processes that connect without connection management: each leaves a description of its end in a folder that both
// know. A job launcher, a socket or a sheet of paper would do as well.
//
//   out_of_band              makes a folder, prints it, and waits there
//   out_of_band FOLDER       comes to it
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "or_exit.h"
#include "peer_argument.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;
namespace fs = std::filesystem;

// Whole or not at all: the other may look at any moment.
void leave(const fs::path& file, const ConnectionDescription& description) {
  const fs::path begun = file.string() + ".begun";
  std::ofstream out(begun);
  out << description.to_string() << '\n';
  out.close();
  std::error_code error;
  if (out) fs::rename(begun, file, error);
  if (out && !error) return;
  std::fprintf(stderr, "cannot write %s\n", file.c_str());
  std::exit(1);
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error);
}

ConnectionDescription find(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return or_exit(ConnectionDescription::parse(line));
}

void meet(ProgressEngine& engine, const fs::path& mine, const fs::path& theirs, const std::string& greeting) {
  const MemoryRegion inbox = or_exit(engine.device().allocate_memory(256));
  Connection connection = or_exit(Connection::prepare(engine));
  Operation receive = connection.receive(inbox.local());
  leave(mine, or_exit(connection.describe()));

  while (!is_there(theirs)) engine.run_until([] { return false; }, Duration::milliseconds(5));
  or_exit(connection.connect_to(find(theirs)));

  // What is sent before the peer has come as far is asked again until it has.
  or_exit(connection.send_inline(std::as_bytes(std::span{greeting})).wait());
  const OperationOutcome message = or_exit(receive.wait());
  std::printf("the other says: %.*s\n", static_cast<int>(message.bytes), reinterpret_cast<const char*>(inbox.data()));
  or_exit(connection.close());
}

}  // namespace

int main(int argc, char** argv) {
  const char* peer = peer_argument(argc, argv, "FOLDER");
  Device device = or_exit(Device::open());
  ProgressEngine engine = or_exit(ProgressEngine::create(device));
  if (peer != nullptr) {
    const fs::path folder = peer;
    return meet(engine, folder / "second", folder / "first", "hello, I found your folder"), 0;
  }
  std::string name = (fs::temp_directory_path() / "verbena-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return 1;
  std::printf("waiting in %s\n", name.c_str());
  std::fflush(stdout);
  const fs::path folder = name;
  meet(engine, folder / "first", folder / "second", "hello, I waited for you");
  fs::remove_all(folder);
}
