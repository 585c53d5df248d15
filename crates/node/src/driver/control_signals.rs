//! What controls a shard's task besides requests: the node's orders, whether the store is unreachable, and whether clients reach
//! this process.
//!
//! These signals change rarely, and all shards share most of them. Receiving from their channels takes locks that all shards share, and
//! a task has two turns for each request. So the task keeps a copy of each signal, and registers once for their changes, not in each turn.

use super::Order;
use std::{
    future::{Future, pending, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tokio::{sync::watch, task::unconstrained};

pub(super) struct ControlSignals {
    /// None while the shard is being closed: later orders are ignored then.
    orders: Option<watch::Receiver<Order>>,
    is_store_away: Copied,
    is_serving: Copied,
    /// None after a change was taken: a registration wakes the task only once.
    registered: Option<Registration>,
}

/// The last value that was received from a channel, and the channel.
struct Copied {
    value: bool,
    channel: watch::Receiver<bool>,
}

/// The task that the next change wakes.
struct Registration {
    task: Waker,
    /// Dropping this future would remove the task from the channels' lists. It is never polled again: the channels themselves say what
    /// has changed.
    _change: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl ControlSignals {
    pub(super) fn new(
        orders: watch::Receiver<Order>,
        is_store_away: watch::Receiver<bool>,
        is_serving: watch::Receiver<bool>,
    ) -> ControlSignals {
        ControlSignals {
            orders: Some(orders),
            is_store_away: Copied::new(is_store_away),
            is_serving: Copied::new(is_serving),
            registered: None,
        }
    }

    /// Whether the store is unreachable at this moment. A change that this function sees is still returned by
    /// [`ControlSignals::take_store_away`].
    pub(super) fn is_store_away(&self) -> bool {
        match self.is_store_away.has_changed() {
            true => *self.is_store_away.channel.borrow(),
            false => self.is_store_away.value,
        }
    }

    /// Whether clients reach the shards of this process.
    pub(super) fn is_serving(&mut self) -> bool {
        if self.is_serving.take_changed().is_some() {
            self.registered = None;
        }
        self.is_serving.value
    }

    /// Whether the store is away, if that has changed since the last call.
    pub(super) fn take_store_away(&mut self) -> Option<bool> {
        let changed = self.is_store_away.take_changed()?;
        self.registered = None;
        Some(changed)
    }

    /// The order, if a new one has arrived since the last call. A node that was dropped orders its shards to close. Orders after an
    /// order to close are ignored.
    pub(super) fn take_order(&mut self) -> Option<Order> {
        let orders = self.orders.as_mut()?;
        let order = match orders.has_changed() {
            Ok(false) => return None,
            Ok(true) => *orders.borrow_and_update(),
            Err(_) => match *orders.borrow() {
                Order::Serve => Order::Close { to: None },
                close => close,
            },
        };
        if matches!(order, Order::Close { .. }) {
            self.orders = None;
        }
        self.registered = None;
        Some(order)
    }

    /// Whether any signal has changed since it was last taken.
    pub(super) fn has_changed(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.has_changed().unwrap_or(true))
            || self.is_store_away.has_changed()
            || self.is_serving.has_changed()
    }

    /// Waits until a signal has changed that was not taken.
    pub(super) async fn changed(&mut self) {
        poll_fn(|context| self.poll_changed(context)).await;
    }

    fn poll_changed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_changed() {
            self.registered = None;
            return Poll::Ready(());
        }
        if self.registered.as_ref().is_some_and(|registered| registered.task.will_wake(context.waker())) {
            return Poll::Pending;
        }
        let orders = self.orders.clone();
        let (mut away, mut serving) = (self.is_store_away.channel.clone(), self.is_serving.channel.clone());
        // Once a task has used up its budget for a turn, tokio's channels return Pending without registering the task. This future is
        // polled only once, so it must register the task: `unconstrained` switches the budget off.
        let mut change = Box::pin(unconstrained(async move {
            tokio::select! {
                () = change_of(orders) => {}
                _ = away.changed() => {}
                _ = serving.changed() => {}
            }
        }));
        // The cloned channels have marked as seen only what was taken, so a change since the check above makes this future ready.
        if change.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        self.registered = Some(Registration { task: context.waker().clone(), _change: change });
        Poll::Pending
    }
}

async fn change_of(orders: Option<watch::Receiver<Order>>) {
    match orders {
        // An error means that the node was dropped, which is a change too.
        Some(mut orders) => drop(orders.changed().await),
        None => pending().await,
    }
}

impl Copied {
    fn new(mut channel: watch::Receiver<bool>) -> Copied {
        let value = *channel.borrow_and_update();
        Copied { value, channel }
    }

    /// The senders of these channels live as long as the service.
    fn has_changed(&self) -> bool {
        self.channel.has_changed().unwrap_or(false)
    }

    fn take_changed(&mut self) -> Option<bool> {
        self.has_changed().then(|| {
            self.value = *self.channel.borrow_and_update();
            self.value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    struct Senders {
        orders: watch::Sender<Order>,
        is_store_away: watch::Sender<bool>,
        is_serving: watch::Sender<bool>,
    }

    fn control_signals() -> (ControlSignals, Senders) {
        let senders = Senders {
            orders: watch::Sender::new(Order::Serve),
            is_store_away: watch::Sender::new(false),
            is_serving: watch::Sender::new(true),
        };
        let Senders { orders, is_store_away, is_serving } = &senders;
        (ControlSignals::new(orders.subscribe(), is_store_away.subscribe(), is_serving.subscribe()), senders)
    }

    /// Waits in a task of its own for a change, and calls `change` once the task waits.
    async fn wakes(mut signals: ControlSignals, change: impl FnOnce()) -> ControlSignals {
        assert!(signals.changed().now_or_never().is_none(), "nothing has changed yet");
        let waiting = tokio::spawn(async move {
            // Twice, as in two turns: the second one finds the task registered.
            tokio::select! {
                biased;
                () = signals.changed() => {}
                () = tokio::task::yield_now() => {}
            }
            signals.changed().await;
            signals
        });
        // A test's runtime has one worker: after these yields, the task waits.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        change();
        waiting.await.expect("it does not panic")
    }

    #[tokio::test]
    async fn each_change_wakes_the_task_and_is_taken_once() {
        let (signals, senders) = control_signals();
        let mut signals = wakes(signals, || _ = senders.is_store_away.send_replace(true)).await;
        assert!(signals.is_store_away());
        assert_eq!((signals.take_store_away(), signals.take_store_away()), (Some(true), None));
        let mut signals = wakes(signals, || _ = senders.is_serving.send_replace(false)).await;
        assert!(!signals.is_serving());
        let mut signals = wakes(signals, || _ = senders.orders.send_replace(Order::Serve)).await;
        assert_eq!((signals.take_order(), signals.take_order()), (Some(Order::Serve), None));
        assert!(!signals.has_changed());
    }

    #[tokio::test]
    async fn after_an_order_to_close_there_is_no_other() {
        let (signals, senders) = control_signals();
        let close = Order::Close { to: None };
        let mut signals = wakes(signals, || _ = senders.orders.send_replace(close)).await;
        assert_eq!(signals.take_order(), Some(close));
        senders.orders.send_replace(Order::Serve);
        assert_eq!(signals.take_order(), None);
        wakes(signals, || _ = senders.is_store_away.send_replace(true)).await;
    }

    #[tokio::test]
    async fn a_node_that_was_dropped_orders_to_close() {
        let (signals, Senders { orders, is_store_away, is_serving }) = control_signals();
        let mut signals = wakes(signals, || drop(orders)).await;
        assert_eq!(signals.take_order(), Some(Order::Close { to: None }));
        assert!(!signals.has_changed());
        drop((is_store_away, is_serving));
    }

    /// Waits in a task that has registered, has seen a change and does this in the same turn. Returns whether `change` wakes it.
    async fn wakes_after(
        first: fn(&mut ControlSignals, &mut Context<'_>),
        change: impl FnOnce(&Senders),
    ) -> bool {
        let (mut signals, senders) = control_signals();
        let is_serving = senders.is_serving.clone();
        let waiting = tokio::spawn(async move {
            assert!(poll_fn(|context| Poll::Ready(signals.poll_changed(context).is_pending())).await);
            is_serving.send_replace(false);
            let mut is_first = true;
            poll_fn(|context| {
                if std::mem::take(&mut is_first) {
                    first(&mut signals, context);
                }
                signals.poll_changed(context)
            })
            .await;
        });
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        change(&senders);
        tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await.is_ok()
    }

    /// The registration has fired, and the task takes the change before it waits again. It must register anew.
    #[tokio::test]
    async fn a_change_that_was_taken_early_hides_no_later_one() {
        let again = |senders: &Senders| _ = senders.is_serving.send_replace(true);
        assert!(wakes_after(|signals, _| assert!(!signals.is_serving()), again).await);
    }

    /// Once a task has used up its budget for a turn, tokio's channels return Pending without registering it.
    #[tokio::test]
    async fn a_task_that_has_used_up_its_turn_is_registered() {
        let exhaust = |signals: &mut ControlSignals, context: &mut Context<'_>| {
            assert!(!signals.is_serving());
            signals.registered = None;
            while tokio::task::coop::has_budget_remaining() {
                let mut once = std::pin::pin!(tokio::task::coop::consume_budget());
                let _used = once.as_mut().poll(context);
            }
        };
        let close = |senders: &Senders| _ = senders.orders.send_replace(Order::Close { to: None });
        assert!(wakes_after(exhaust, close).await);
    }
}
