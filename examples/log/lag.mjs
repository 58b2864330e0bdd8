// Prints the lag of each consumer group by topic, and exits with 1 when one exceeds LIMIT records.
//
//   node lag.mjs http://127.0.0.1:9093 LIMIT
//
// The address is that of the broker's option --http. For cron, or as a check of a monitoring agent.

const [base, limit] = process.argv.slice(2);
if (base === undefined || !(Number(limit) >= 0)) {
  console.error("usage: node lag.mjs URL LIMIT");
  process.exit(2);
}

const answer = await fetch(new URL("/v1/groups", base));
if (!answer.ok) {
  console.error(`the broker answered ${answer.status}: ${await answer.text()}`);
  process.exit(2);
}

let isBehind = false;
for (const { group, topics } of await answer.json()) {
  for (const { topic, lag } of topics) {
    const mark = lag > Number(limit) ? "BEHIND" : "ok";
    console.log(`${mark} ${group} ${topic} ${lag}`);
    isBehind ||= lag > Number(limit);
  }
}
process.exit(isBehind ? 1 : 0);
