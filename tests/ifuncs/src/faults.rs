//! An ifunc that ends early, in every way.

use alloc::vec;
use core::arch::asm;
use core::hint::black_box;

use ifunc::prelude::*;

use crate::State;

/// Numbers of the ways that `t_faults` ends.
pub const WAYS: [&str; 8] = [
    "reads a wild pointer",
    "writes where it may not",
    "reads what is misaligned, where the processor checks it",
    "divides by zero",
    "has no valid instruction",
    "jumps to where there is no code",
    "overflows its stack",
    "does not end",
];

/// Changes the counter, and ends in the chosen way while it holds a mebibyte.
#[ifunc]
pub fn t_faults(way: u64, state: &mut State) -> u64 {
    let before = state.counter;
    state.counter = u64::MAX;
    let held = black_box(vec![1u8; 1 << 20]);
    // SAFETY: none: the faults are what is tested.
    unsafe {
        match way {
            0 => asm!("mov {0}, [{0}]", inout(reg) 24usize => _),
            1 => asm!("mov dword ptr [{}], 1", in(reg) t_faults_of_code as *const () as usize),
            2 => {
                asm!("push 0", "pushfq", "or dword ptr [rsp], 0x40000", "popfq", "mov {0:e}, [rsp + 1]", "pop {0}", out(reg) _)
            }
            3 => {
                asm!("xor edx, edx", "mov eax, 1", "xor ecx, ecx", "div ecx", out("eax") _, out("ecx") _, out("edx") _)
            }
            4 => asm!("ud2"),
            5 => asm!("call {}", in(reg) 4096usize, clobber_abi("C")),
            6 => asm!("2: push 1", "jmp 2b"),
            7 => asm!("2: pause", "jmp 2b"),
            _ => {}
        }
    }
    state.counter = before + u64::from(held[way as usize]) - 1;
    state.counter
}

/// Changes the counter, and panics.
#[ifunc]
pub fn t_panics(why: &str, state: &mut State) -> u64 {
    state.counter = u64::MAX;
    panic!("{why}")
}

/// Makes a system call, as hostile code would: its number, and its arguments. Answers what the kernel returns.
#[ifunc]
pub fn t_calls_kernel(words: [u64; 7], _state: &mut State) -> u64 {
    let [number, a, b, c, d, e, f] = words;
    let result;
    // SAFETY: none: what the kernel does with it is what is tested.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    result
}

/// Uses so many bytes of memory.
#[ifunc]
pub fn t_allocates(bytes: u64, _state: &mut State) -> u64 {
    let held = black_box(vec![1u8; bytes as usize]);
    held.iter().step_by(4096).map(|byte| u64::from(*byte)).sum()
}

/// Code, which is not writable.
extern "C" fn t_faults_of_code() {}
