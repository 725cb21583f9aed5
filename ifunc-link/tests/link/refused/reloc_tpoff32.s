##Machines: x86-64
## A thread-local variable by a fixed offset.
        .section .text.reloc_tpoff32_main,"ax",@progbits
        .globl reloc_tpoff32_main
        .type reloc_tpoff32_main,@function
reloc_tpoff32_main:
        mov %fs:there@TPOFF,%rax
        xor %eax,%eax
        ret
        .size reloc_tpoff32_main,.-reloc_tpoff32_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
