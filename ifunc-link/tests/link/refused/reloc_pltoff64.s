##Machines: x86-64
## The distance from the GOT to a trampoline.
        .section .text.reloc_pltoff64_main,"ax",@progbits
        .globl reloc_pltoff64_main
        .type reloc_pltoff64_main,@function
reloc_pltoff64_main:
        movabs $there@PLTOFF,%rax
        xor %eax,%eax
        ret
        .size reloc_pltoff64_main,.-reloc_pltoff64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
