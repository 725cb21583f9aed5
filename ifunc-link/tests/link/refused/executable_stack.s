##Machines: x86-64
#  The object asks for an executable stack by its note alone.
        .section .text.executable_stack_main,"ax",@progbits
        .globl executable_stack_main
        .type executable_stack_main,@function
executable_stack_main:
        xor %eax,%eax
        ret
        .size executable_stack_main,.-executable_stack_main
        .section .note.GNU-stack,"x",@progbits
