//! Bodies of requests: whatever they contain, the answer is a command of the engine or a problem document. A command that was
//! accepted is sent to another node and accepted there too.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_engine::{Command, Name, Request};
use limina_server::fuzzing;

fuzz_target!(|input: &[u8]| {
    let [kind, body @ ..] = input else { return };
    let Some(command) = fuzzing::command(usize::from(*kind), body) else { return };
    let request = Request::new(Name::new("n").expect("a valid name"), command);
    let again = fuzzing::peer_request(&fuzzing::encode_peer_request(&request));
    // Floats are compared by their text, because NaN differs from itself. Commands contain none.
    assert_eq!(again.map(|request| text(&request.command)), Some(text(&request.command)));
});

fn text(command: &Command) -> String {
    format!("{command:?}")
}
