##Machines: x86-64
## A thread-local variable by an offset in the GOT.
        .section .text.reloc_gottpoff_main,"ax",@progbits
        .globl reloc_gottpoff_main
        .type reloc_gottpoff_main,@function
reloc_gottpoff_main:
        mov there@GOTTPOFF(%rip),%rax
        xor %eax,%eax
        ret
        .size reloc_gottpoff_main,.-reloc_gottpoff_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
