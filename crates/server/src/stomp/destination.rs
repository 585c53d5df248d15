//! The destinations of subscriptions.

use limina_engine::Name;
use percent_encoding::percent_decode_str;

/// A topic that a client can subscribe to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// `/topic/{stream}` or `/topic/{namespace}/{stream}`; without a namespace, the default one.
    Stream { namespace: Option<Name>, stream: Name },
    /// `/topic/time`
    Time,
}

impl Destination {
    /// `None` if the text is not a valid destination of a subscription.
    pub(super) fn parse(text: &str) -> Option<Destination> {
        if text == "/topic/time" {
            return Some(Destination::Time);
        }
        let path = text.strip_prefix("/topic/")?;
        Some(match path.split_once('/') {
            None => Destination::Stream { namespace: None, stream: decoded(path)? },
            Some((namespace, stream)) => {
                Destination::Stream { namespace: Some(decoded(namespace)?), stream: decoded(stream)? }
            }
        })
    }
}

fn decoded(segment: &str) -> Option<Name> {
    let is_one = !segment.contains('/');
    let text = percent_decode_str(segment).decode_utf8().ok().filter(|_| is_one)?;
    Name::new(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_name_a_stream_and_perhaps_its_namespace() {
        #[track_caller]
        fn check(text: &str, expect: Option<(Option<&str>, &str)>) {
            let name = |text: &str| Name::new(text).unwrap();
            let expect = expect.map(|(namespace, stream)| Destination::Stream {
                namespace: namespace.map(name),
                stream: name(stream),
            });
            assert_eq!(Destination::parse(text), expect, "{text}");
        }
        check("/topic/tacos", Some((None, "tacos")));
        check("/topic/shop/tacos", Some((Some("shop"), "tacos")));
        check("/topic/a%2Fb/%F0%9F%8C%AE", Some((Some("a/b"), "🌮")));
        check("/topic/shop/time", Some((Some("shop"), "time")));
        check("/topic/a+b", Some((None, "a+b")));
        check("/topic/", None);
        check("/topic//tacos", None);
        check("/topic/shop/", None);
        check("/topic/a/b/c", None);
        check("/topic/%FF", None);
        check("/queue/tacos", None);
        check("topic/tacos", None);
        check("", None);
        assert_eq!(Destination::parse("/topic/time"), Some(Destination::Time));
    }
}
