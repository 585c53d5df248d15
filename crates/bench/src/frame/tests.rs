//! What a run prints, and in which order, with a family that measures nothing.

use super::*;
use clap::Parser;
use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

/// What was printed so far.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Two kinds with a section each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fake {
    First,
    Second,
}

impl Kind for Fake {
    fn system(self) -> System {
        System::Other
    }

    fn baseline(self) -> Option<Fake> {
        None
    }

    fn work(self) -> &'static str {
        "nothing"
    }

    type Section = Fake;

    fn section(self) -> Fake {
        self
    }
}

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: Common<Fake>,
}

/// A family that measures nothing, and looks at what is printed whenever it should measure.
struct Fakes {
    options: Options,
    printed: Printed,
    /// The kinds that were measured, each with what was printed before.
    seen: Arc<Mutex<Vec<(Fake, String)>>>,
}

impl<T> Measure<Fake, T> for Fakes {
    async fn measure<C: Contender<Client = T>>(&mut self, _: Fake, _: &C) -> Result<Measured, Failed> {
        Err("there are no contenders".into())
    }
}

impl Family<Fake> for Fakes {
    const NAME: &'static str = "fakes";
    const UNIT: &'static str = "fakes";
    const REDIS: redis::Setup = redis::Setup { sync: redis::Sync::EverySecond, scripts: &[] };

    fn common(&self) -> &Common<Fake> {
        &self.options.common
    }

    fn load(&self, _: Fake) -> Load {
        Load { connections: 1, batch: 1 }
    }

    async fn measure_other(&mut self, kind: Fake, _: Start<'_>) -> Result<Option<Row<Fake>>, Failed> {
        self.seen.lock().unwrap().push((kind, self.printed.text()));
        Ok(None)
    }

    fn report(&self, section: Fake, _: &Rows<Fake>) -> Result<String, std::fmt::Error> {
        Ok(format!("section {section:?}\n"))
    }
}

#[tokio::test]
async fn a_section_is_printed_before_the_next_one_is_measured() {
    let data = tempfile::tempdir().unwrap();
    let args = ["fakes", "--rounds=2", "--data", data.path().to_str().unwrap()];
    let (printed, seen) = (Printed::default(), Arc::default());
    let options = Options::parse_from(args);
    let fakes = bench(Fakes { options, printed: printed.clone(), seen: Arc::clone(&seen) }).unwrap();
    assert_eq!(fakes.plan().steps, 4);
    let screen = Screen::to(printed.clone(), fakes.plan());
    fakes.run(&screen).await.unwrap();

    let kinds: Vec<Fake> = seen.lock().unwrap().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [Fake::First, Fake::Second, Fake::First, Fake::Second]);
    let sections = |text: &str| text.lines().filter(|line| line.starts_with("section")).count();
    let before: Vec<usize> = seen.lock().unwrap().iter().map(|(_, text)| sections(text)).collect();
    // The first section is complete after its second round.
    assert_eq!(before, [0, 0, 0, 1]);
    assert_eq!(sections(&printed.text()), 2);
}
