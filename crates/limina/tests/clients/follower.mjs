// Follows a stream of events: folds key frames and changes into the set of incubating events, and resumes by the clock.
import { Client } from "@stomp/stompjs";

export function follow(url, topic, onChange, options = {}) {
  const state = { clock: null, incubating: new Map(), missed: 0 };
  const fold = (message) => {
    const { messageType, clock, snapshot, eventTime } = JSON.parse(message.body);
    if (messageType === "KEY_FRAME") {
      state.clock = clock;
      state.incubating = new Map(snapshot.map(({ event, time }) => [event, time]));
    } else if (clock === state.clock + 1) {
      state.clock = clock;
      if (messageType === "SUBMITTED_EVENT") state.incubating.set(eventTime.event, eventTime.time);
      else state.incubating.delete(eventTime.event);
    } else {
      state.missed += 1; // Never: the clock has no gaps.
    }
    onChange(state, messageType);
  };
  const client = new Client({
    brokerURL: url,
    reconnectDelay: 100,
    onConnect: () => {
      const headers = state.clock === null ? {} : { "resume-after": String(state.clock) };
      client.subscribe(topic, fold, headers);
    },
    ...options,
  });
  client.activate();
  return client;
}
