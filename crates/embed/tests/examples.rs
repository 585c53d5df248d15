//! The tests of the examples. They are compiled into this program, because each example of its own would be linked with all
//! dependencies once more.

// Nobody calls their `main` here.
#![allow(dead_code)]

#[path = "../examples/build_farm.rs"]
mod build_farm;
#[path = "../examples/llm_gateway.rs"]
mod llm_gateway;
#[path = "../examples/payment.rs"]
mod payment;
#[path = "../examples/separate_calls.rs"]
mod separate_calls;
#[path = "../examples/shop.rs"]
mod shop;
