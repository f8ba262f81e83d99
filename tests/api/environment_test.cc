// SPDX-License-Identifier: Apache-2.0
// Files that the environment asks for, in a folder where others have left things.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "test_pair.h"

namespace verbena {
namespace {

namespace fs = std::filesystem;
using test::must;

class EnvironmentFiles : public ::testing::Test {
 protected:
  EnvironmentFiles() {
    std::string name = (fs::temp_directory_path() / "verbena-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    std::ofstream(folder / "precious") << "precious";
  }
  ~EnvironmentFiles() override {
    ::unsetenv("VERBENA_PCAP");
    ::unsetenv("VERBENA_COUNTERS");
    fs::remove_all(folder);
  }
  // Something under each name that the next device of this process may take.
  void occupy(const std::string& begin, const std::string& end, const std::function<void(const fs::path&)>& make) {
    const int last = last_number();
    for (int number = last + 1; number <= last + 20; ++number)
      make(folder / (begin + "-" + std::to_string(::getpid()) + "-" + std::to_string(number) + end));
  }
  // Of the files of this process.
  int last_number() const {
    const fs::path apart = folder / "apart";
    fs::create_directory(apart);
    ::setenv("VERBENA_PCAP", (apart / "wire").c_str(), 1);
    static_cast<void>(must(Device::open()));
    ::unsetenv("VERBENA_PCAP");
    const std::string name = fs::directory_iterator(apart)->path().filename();
    fs::remove_all(apart);
    return std::stoi(name.substr(name.rfind('-') + 1));
  }
  std::size_t regular_files() const {
    return static_cast<std::size_t>(std::count_if(fs::directory_iterator(folder), {}, [](const auto& entry) {
      return entry.symlink_status().type() == fs::file_type::regular;
    }));
  }
  std::string precious() const {
    std::ifstream file(folder / "precious");
    std::string text;
    file >> text;
    return text;
  }

  fs::path folder;
};

TEST_F(EnvironmentFiles, a_capture_does_not_go_where_a_link_points) {
  occupy("wire", ".pcapng", [this](const fs::path& path) { fs::create_symlink(folder / "elsewhere", path); });
  ::setenv("VERBENA_PCAP", (folder / "wire.pcapng").c_str(), 1);
  const Device device = must(Device::open());
  EXPECT_FALSE(fs::exists(folder / "elsewhere"));
  EXPECT_EQ(regular_files(), 2u);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink() || entry.path().filename() == "precious") continue;
    EXPECT_EQ(entry.status().permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(EnvironmentFiles, a_device_that_does_not_open_leaves_no_capture) {
  ::setenv("VERBENA_PCAP", (folder / "wire.pcapng").c_str(), 1);
  EXPECT_FALSE(Device::open("no such device"));
  EXPECT_EQ(regular_files(), 1u);
}

TEST_F(EnvironmentFiles, a_device_whose_counters_cannot_be_written_leaves_none) {
  occupy("device", ".new", [](const fs::path& path) { fs::create_directory(path); });
  ::setenv("VERBENA_COUNTERS", folder.c_str(), 1);
  EXPECT_FALSE(Device::open());
  EXPECT_EQ(regular_files(), 1u);
}

TEST_F(EnvironmentFiles, counters_that_cannot_be_kept_leave_no_draft) {
  ::setenv("VERBENA_COUNTERS", folder.c_str(), 1);
  {
    const Device device = must(Device::open());
    fs::path path;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with("device-")) path = entry.path();
    ASSERT_FALSE(path.empty());
    fs::remove(path);
    fs::create_directories(path / "in the way");
  }
  EXPECT_EQ(regular_files(), 1u);
}

TEST_F(EnvironmentFiles, counters_are_not_written_into_files_of_others) {
  occupy("device", ".new", [this](const fs::path& path) { fs::create_hard_link(folder / "precious", path); });
  ::setenv("VERBENA_COUNTERS", folder.c_str(), 1);
  { const Device device = must(Device::open()); }
  EXPECT_EQ(precious(), "precious");
}

TEST_F(EnvironmentFiles, counters_stay_where_the_program_was_when_it_opened_the_device) {
  const fs::path before = fs::current_path();
  fs::create_directory(folder / "here");
  fs::create_directory(folder / "there");
  fs::current_path(folder / "here");
  ::setenv("VERBENA_COUNTERS", "counters", 1);
  {
    const Device device = must(Device::open());
    fs::current_path(folder / "there");
    fs::create_directory("counters");
  }
  fs::current_path(before);
  const auto kept = fs::directory_iterator(folder / "here" / "counters");
  ASSERT_NE(kept, fs::directory_iterator());
  std::ifstream file(kept->path());
  EXPECT_NE(std::string(std::istreambuf_iterator<char>(file), {}).find("open no"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder / "there" / "counters"));
}

// g++ would take braces that name members for a string, too.
TEST_F(EnvironmentFiles, a_device_opens_with_options_in_braces) {
  const std::string wire = folder / "wire.pcapng";
  EXPECT_EQ(must(Device::open({.device = "127.0.0.5"})).info().address.to_string(), "127.0.0.5");
  EXPECT_EQ(must(Device::open(std::string_view("127.0.0.5"))).info().address.to_string(), "127.0.0.5");
  EXPECT_EQ(must(Device::open(std::string("127.0.0.5"))).info().address.to_string(), "127.0.0.5");
  { const Device device = must(Device::open({.pcap_file = wire})); }
  EXPECT_TRUE(fs::exists(wire));
  EXPECT_TRUE(Device::open({.local_dir = folder.string()}));
  EXPECT_TRUE(Device::open({}));
}

TEST(Environment, a_folder_of_counters_that_cannot_be_made_is_no_missing_device) {
  ::setenv("VERBENA_COUNTERS", "/nonexistent/deeper/still", 1);
  const auto opened = Device::open();
  ::unsetenv("VERBENA_COUNTERS");
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().code(), ErrorCode::NotFound) << opened.error().to_string();
}

}  // namespace
}  // namespace verbena
