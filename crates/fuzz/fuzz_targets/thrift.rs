//! Messages of Liminator's Thrift interface: whatever they contain, the answer is a command of the engine or an error. A command
//! that was accepted is sent to another node and accepted there too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_engine::{Name, Request};
use limina_server::fuzzing;

fuzz_target!(|input: &[u8]| {
    let Some(command) = fuzzing::liminator_command(input) else { return };
    let request = Request::new(Name::new("n").expect("a valid name"), command);
    let again = fuzzing::peer_request(&fuzzing::encode_peer_request(&request));
    assert_eq!(again.map(|request| request.command), Some(request.command));
});
