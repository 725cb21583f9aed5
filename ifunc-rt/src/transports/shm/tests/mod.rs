//! Both sides in one process, and in two.

mod one_process;
