"""A member of a group by KIP-848 that follows a pattern, which the broker matches."""


def follow(broker, pattern, user, secret, certificate):
    """Says which topics it is given, until it is ended."""
    given = set()

    def assigned(consumer, partitions):
        consumer.incremental_assign(partitions)
        for topic in sorted({it.topic for it in partitions} - given):
            given.add(topic)
            print("given", topic, flush=True)

    consumer = broker.consumer(
        "followers",
        group_protocol="consumer",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username=user,
        sasl_password=secret,
        ssl_ca_location=certificate,
    )
    consumer.subscribe([pattern], on_assign=assigned)
    while True:
        message = consumer.poll(0.2)
        if message is not None and message.error():
            print("error", message.error(), flush=True)
