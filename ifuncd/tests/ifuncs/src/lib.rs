//! The ifuncs that the tests of ifuncd send.

#![no_std]
