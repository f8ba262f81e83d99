// SPDX-License-Identifier: Apache-2.0
#include "base/system_call.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace verbena {

namespace {

// Of code that is bound to its place the program may have addresses of its own for functions of a library. And who
// unwinds must be told of the frame.
#if defined(__x86_64__) && defined(__LP64__) && defined(__PIC__) && defined(__GCC_HAVE_DWARF2_CFI_ASM)
#define VERBENA_CALLS_KERNEL 1
#endif

#ifdef VERBENA_CALLS_KERNEL
constexpr bool kKnowsHow = true;
#else
constexpr bool kKnowsHow = false;
#endif

template <class Function>
const void* address_of(Function* function) {
  return reinterpret_cast<const void*>(function);
}

// Nobody puts another in the place of __errno_location().
const void* object_of(const void* function) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
}

const bool kCallsItself = [] {
  if (!kKnowsHow) return false;
  const std::array calls{address_of(::recvfrom), address_of(::recvmsg), address_of(::recvmmsg), address_of(::read),
                         address_of(::sendto),   address_of(::sendmsg), address_of(::sendmmsg), address_of(::write),
                         address_of(::epoll_wait)};
  for (const void* call : calls)
    if (!is_of_c_library(call)) return false;
  return true;
}();

}  // namespace

bool calls_kernel_itself() { return kCallsItself; }

bool is_of_c_library(const void* function) {
  const void* const object = object_of(function);
  return object != nullptr && object == object_of(address_of(::__errno_location));
}

#ifdef VERBENA_CALLS_KERNEL

[[gnu::used]] bool verbena_fills_returns = __builtin_cpu_is("intel") == 0;

// Thirty-two calls from which nobody returns: so many a processor remembers, or more than lie between here and who
// polls. Where a shadow stack watches (rdsspq yields something) they would pass for an attack. Meanwhile the frame is
// known by rdx: who unwinds in a signal handler finds the caller.
extern "C" [[gnu::naked]] long verbena_call_kernel(long, long, long, long, long, long, long) {
  asm(R"(
    mov %rdi, %rax
    mov %rsi, %rdi
    mov %rdx, %rsi
    mov %rcx, %rdx
    mov %r8, %r10
    mov %r9, %r8
    mov 8(%rsp), %r9
    syscall
    cmpb $0, verbena_fills_returns(%rip)
    je 4f
    xor %ecx, %ecx
    rdsspq %rcx
    test %rcx, %rcx
    jnz 4f
    mov %rsp, %rdx
    .cfi_def_cfa_register %rdx
    mov $16, %ecx
1:  call 2f
    int3
2:  call 3f
    int3
3:  dec %ecx
    jnz 1b
    mov %rdx, %rsp
    .cfi_def_cfa_register %rsp
4:  ret
  )");
}

#else

bool verbena_fills_returns = false;
extern "C" long verbena_call_kernel(long, long, long, long, long, long, long) { return -ENOSYS; }

#endif

}  // namespace verbena
