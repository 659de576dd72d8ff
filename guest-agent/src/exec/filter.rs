//! Calls that commands in sealed views do not have: those of the kernel's keyrings. `request_key` makes the kernel run
//! `/sbin/request-key` as the machine's root, from a disk that the view's root can write. Containers have none of
//! these three either. The answer is that of a kernel without keyrings (ENOSYS): runc and PAM go on without then, and take
//! a refusal (EPERM) for a fault.

use std::ffi::c_ulong;

// linux/audit.h
const ARCH_X86_64: u32 = 0xC000_003E;
const ARCH_I386: u32 = 0x4000_0003;
/// Set in the numbers of the x32 interface, which has the same architecture.
const X32_BIT: u32 = 0x4000_0000;
/// add_key, request_key, keyctl follow each other in both tables.
const KEYS_64: u32 = 248;
const KEYS_32: u32 = 286;
const KEYS_COUNT: u32 = 3;
/// Where `struct seccomp_data` has them.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const fn step(code: u16, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt: yes, jf: no, k }
}

/// Jumps count from the next step.
static STEPS: [libc::sock_filter; 12] = [
    step(LOAD, ARCH_AT, 0, 0),
    step(JUMP_EQUAL, ARCH_I386, 5, 0),
    step(JUMP_EQUAL, ARCH_X86_64, 0, 7),
    step(LOAD, NUMBER_AT, 0, 0),
    step(AND, !X32_BIT, 0, 0),
    step(JUMP_AT_LEAST, KEYS_64, 0, 4),
    step(JUMP_AT_LEAST, KEYS_64 + KEYS_COUNT, 3, 4),
    step(LOAD, NUMBER_AT, 0, 0),
    step(JUMP_AT_LEAST, KEYS_32, 0, 1),
    step(JUMP_AT_LEAST, KEYS_32 + KEYS_COUNT, 0, 1),
    step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
];

/// Sets it for this process and all that come from it. Needs no memory; for a fresh child.
pub fn refuse_keys() -> bool {
    let program = libc::sock_fprog { len: STEPS.len() as u16, filter: STEPS.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, and does not write it.
    unsafe {
        let mode = c_ulong::from(libc::SECCOMP_MODE_FILTER);
        libc::prctl(libc::PR_SET_SECCOMP, mode, &program, 0, 0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the steps as the kernel does; whether the call is allowed.
    fn allows(arch: u32, number: u32) -> bool {
        let (mut at, mut value) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = STEPS[at];
            at += 1;
            match code {
                LOAD => value = if k == ARCH_AT { arch } else { number },
                AND => value &= k,
                JUMP_EQUAL => at += usize::from(if value == k { jt } else { jf }),
                JUMP_AT_LEAST => at += usize::from(if value >= k { jt } else { jf }),
                _ => return k == libc::SECCOMP_RET_ALLOW,
            }
        }
    }

    #[test]
    fn the_three_calls_are_refused_in_every_table_and_no_other() {
        for (arch, first, bit) in [(ARCH_X86_64, 248, 0), (ARCH_X86_64, 248, X32_BIT), (ARCH_I386, 286, 0)] {
            let refused: Vec<u32> = (0..600).filter(|number| !allows(arch, number | bit)).collect();
            assert_eq!(refused, [first, first + 1, first + 2]);
        }
        assert_eq!(libc::SYS_request_key, 249);
    }
}
