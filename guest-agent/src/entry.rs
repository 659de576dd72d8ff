//! Where the kernel enters the binary. As `@agent-probe` it ends at once, before libc and Rust set
//! themselves up: that set-up cost more than half of the first command of a restored machine (measured
//! under emulation, where every line of code is translated anew). Otherwise the usual start follows.
//! `build.rs` makes this the entry point.

// At the entry argc lies at [rsp] and argv[0] at [rsp + 8]; rdx belongs to libc and must be kept.
// The eight bytes compared are "@agent-p"; exit_group is call 231.
std::arch::global_asm!(
    ".globl sandlot_entry",
    ".type sandlot_entry,@function",
    "sandlot_entry:",
    "mov rax, [rsp + 8]",
    "test rax, rax",
    "jz 2f",
    "mov rcx, [rax]",
    "movabs rsi, 0x702d746e65676140",
    "cmp rcx, rsi",
    "jne 2f",
    "mov eax, 231",
    "xor edi, edi",
    "syscall",
    "2: jmp _start",
);
