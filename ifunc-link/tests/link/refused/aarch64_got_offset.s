##Machines: aarch64
// Offsets from the GOT of a linked file, and from an import.
        .section .text.aarch64_got_offset_main,"ax",@progbits
        .globl aarch64_got_offset_main
        .type aarch64_got_offset_main,%function
aarch64_got_offset_main:
        adrp x0,_GLOBAL_OFFSET_TABLE_
        ldr x0,[x0,:gotpage_lo15:host_counter]
        bl host_add+4
        ret
        .size aarch64_got_offset_main,.-aarch64_got_offset_main
