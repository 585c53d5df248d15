//! What a shard's task is told besides requests: orders of the node, whether the store is away, whether clients reach this process.
//!
//! All of it changes rarely, and most of it is shared by all shards. So the task keeps copies, and registers for changes once, not in
//! each of its turns, of which there are two for a request: both take locks that all shards share.

use super::Order;
use std::{
    future::{Future, pending, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tokio::{sync::watch, task::unconstrained};

pub(super) struct News {
    /// None when a shard is being closed: then no other order counts.
    orders: Option<watch::Receiver<Order>>,
    is_store_away: Copied,
    is_serving: Copied,
    /// None from the moment when a change is taken: a registration wakes the task once only.
    registered: Option<Registration>,
}

/// A value of a channel, and the channel.
struct Copied {
    value: bool,
    channel: watch::Receiver<bool>,
}

/// A task that is woken by the next change.
struct Registration {
    task: Waker,
    /// Kept, because it leaves the channels' lists when it is dropped. It is never polled again: what has changed is read from the channels.
    _change: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl News {
    pub(super) fn new(
        orders: watch::Receiver<Order>,
        is_store_away: watch::Receiver<bool>,
        is_serving: watch::Receiver<bool>,
    ) -> News {
        News {
            orders: Some(orders),
            is_store_away: Copied::new(is_store_away),
            is_serving: Copied::new(is_serving),
            registered: None,
        }
    }

    /// Whether the store does not answer at this moment. [`News::take_store_away`] still returns a change that was seen here.
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

    /// The order, if there is a new one since the last call. If the node was dropped, that is an order to close. After an order to
    /// close there is no other.
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

    /// Whether there is something that was not taken.
    pub(super) fn has_changed(&self) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.has_changed().unwrap_or(true))
            || self.is_store_away.has_changed()
            || self.is_serving.has_changed()
    }

    /// Waits until there is something that was not taken.
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
        // In a long turn the runtime makes its channels return without registering the task, so that others have their turns. This is
        // polled once only, so it must register.
        let mut change = Box::pin(unconstrained(async move {
            tokio::select! {
                () = change_of(orders) => {}
                _ = away.changed() => {}
                _ = serving.changed() => {}
            }
        }));
        // A change since the look above is found here, because these channels have seen what was taken, and nothing later.
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

    fn news() -> (News, Senders) {
        let senders = Senders {
            orders: watch::Sender::new(Order::Serve),
            is_store_away: watch::Sender::new(false),
            is_serving: watch::Sender::new(true),
        };
        let Senders { orders, is_store_away, is_serving } = &senders;
        (News::new(orders.subscribe(), is_store_away.subscribe(), is_serving.subscribe()), senders)
    }

    /// Waits in a task of its own until `news` has changed, which `change` does when the task waits.
    async fn wakes(mut news: News, change: impl FnOnce()) -> News {
        assert!(news.changed().now_or_never().is_none(), "nothing has changed yet");
        let waiting = tokio::spawn(async move {
            // Twice, as in two turns: the second one finds the task registered.
            tokio::select! {
                biased;
                () = news.changed() => {}
                () = tokio::task::yield_now() => {}
            }
            news.changed().await;
            news
        });
        // The runtime of a test has one worker, so the task has run as far as it comes.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        change();
        waiting.await.expect("it does not panic")
    }

    #[tokio::test]
    async fn each_change_wakes_the_task_and_is_taken_once() {
        let (news, senders) = news();
        let mut news = wakes(news, || _ = senders.is_store_away.send_replace(true)).await;
        assert!(news.is_store_away());
        assert_eq!((news.take_store_away(), news.take_store_away()), (Some(true), None));
        let mut news = wakes(news, || _ = senders.is_serving.send_replace(false)).await;
        assert!(!news.is_serving());
        let mut news = wakes(news, || _ = senders.orders.send_replace(Order::Serve)).await;
        assert_eq!((news.take_order(), news.take_order()), (Some(Order::Serve), None));
        assert!(!news.has_changed());
    }

    #[tokio::test]
    async fn after_an_order_to_close_there_is_no_other() {
        let (news, senders) = news();
        let close = Order::Close { to: None };
        let mut news = wakes(news, || _ = senders.orders.send_replace(close)).await;
        assert_eq!(news.take_order(), Some(close));
        senders.orders.send_replace(Order::Serve);
        assert_eq!(news.take_order(), None);
        wakes(news, || _ = senders.is_store_away.send_replace(true)).await;
    }

    #[tokio::test]
    async fn a_node_that_was_dropped_orders_to_close() {
        let (news, Senders { orders, is_store_away, is_serving }) = news();
        let mut news = wakes(news, || drop(orders)).await;
        assert_eq!(news.take_order(), Some(Order::Close { to: None }));
        assert!(!news.has_changed());
        drop((is_store_away, is_serving));
    }

    /// Waits in a task that has registered, has seen a change and does this in the same turn. Returns whether `change` wakes it.
    async fn wakes_after(first: fn(&mut News, &mut Context<'_>), change: impl FnOnce(&Senders)) -> bool {
        let (mut news, senders) = news();
        let is_serving = senders.is_serving.clone();
        let waiting = tokio::spawn(async move {
            assert!(poll_fn(|context| Poll::Ready(news.poll_changed(context).is_pending())).await);
            is_serving.send_replace(false);
            let mut is_first = true;
            poll_fn(|context| {
                if std::mem::take(&mut is_first) {
                    first(&mut news, context);
                }
                news.poll_changed(context)
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

    /// What was registered has fired. The task took the change before it looked whether there is one.
    #[tokio::test]
    async fn a_change_that_was_taken_early_hides_no_later_one() {
        let again = |senders: &Senders| _ = senders.is_serving.send_replace(true);
        assert!(wakes_after(|news, _| assert!(!news.is_serving()), again).await);
    }

    /// In a long turn, the runtime lets its channels pretend that nothing has changed, so that other tasks have their turns.
    #[tokio::test]
    async fn a_task_that_has_used_up_its_turn_is_registered() {
        let exhaust = |news: &mut News, context: &mut Context<'_>| {
            assert!(!news.is_serving());
            news.registered = None;
            while tokio::task::coop::has_budget_remaining() {
                let mut once = std::pin::pin!(tokio::task::coop::consume_budget());
                let _used = once.as_mut().poll(context);
            }
        };
        let close = |senders: &Senders| _ = senders.orders.send_replace(Order::Close { to: None });
        assert!(wakes_after(exhaust, close).await);
    }
}
