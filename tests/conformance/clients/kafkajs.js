// KafkaJS. Speaks the protocol of clients/protocol.py; run with NODE_PATH where kafkajs is.
'use strict'

const fs = require('fs')
const readline = require('readline')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')
const version = require('kafkajs/package.json').version

const MARK = '@@ '
const SESSION_TIMEOUT_MS = 6000
// A member whose session expires within a transaction cannot commit it: longer than the pauses of a busy machine.
const TRANSFORM_SESSION_TIMEOUT_MS = 20000
const IDLE_MS = 1000
const CONSUME_TIMEOUT_MS = 60000
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }

const logCreator = () => ({ log }) => process.stderr.write(JSON.stringify(log) + '\n')
const newToken = async ({ token_url, user, password }) => {
  const headers = { Authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` }
  const body = new URLSearchParams({ grant_type: 'client_credentials' })
  return { value: (await (await fetch(token_url, { method: 'POST', headers, body })).json()).access_token }
}

// The settings for a login; its file is that of `as_json` in logins.py.
const secured = (path) => {
  if (!path) return {}
  const login = JSON.parse(fs.readFileSync(path))
  const ssl = { ca: [fs.readFileSync(login.ca)] }
  if (login.certificate) {
    const both = fs.readFileSync(login.certificate)
    return { ssl: { ...ssl, key: both, cert: both } }
  }
  const mechanism = login.mechanism.toLowerCase()
  if (login.token_url) return { ssl, sasl: { mechanism, oauthBearerProvider: () => newToken(login) } }
  return { ssl, sasl: { mechanism, username: login.user, password: login.password } }
}

const kafka = new Kafka({
  brokers: [process.argv[2]],
  logLevel: logLevel.WARN,
  logCreator,
  ...secured(process.argv[3]),
})
const say = (message) => process.stdout.write(MARK + JSON.stringify(message) + '\n')
const text = (value) => (value === null || value === undefined ? null : value.toString())
const delay = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

let goOn = () => {}
const pausing = (hold) => async (step) => {
  if (step !== hold) return
  const held = step === 'committing' ? null : new Promise((resolve) => (goOn = resolve))
  say({ at: step })
  await held
}

let opened
const admin = async () => {
  if (!opened) {
    opened = kafka.admin()
    await opened.connect()
  }
  return opened
}

const member = { consumer: null, records: [], assignment: [] }
const transforming = { producer: null, consumer: null, group: '', target: '', waiting: [] }

const follow = (consumer) => {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assignment = Object.entries(payload.memberAssignment).flatMap(([topic, all]) => all.map((each) => [topic, each]))
  })
  consumer.on(consumer.events.REBALANCING, () => (member.assignment = []))
}

// Gives batches to `transform_once`; a batch stays current until `done`.
const eachBatch = async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
  const beating = setInterval(() => heartbeat().catch(() => {}), IDLE_MS)
  try {
    await new Promise((resolve) => {
      transforming.waiting.push({ batch, resolveOffset, done: resolve })
      const watching = setInterval(() => {
        if (isRunning() && !isStale()) return
        clearInterval(watching)
        resolve()
      }, 100)
    })
  } finally {
    clearInterval(beating)
  }
}

const next = async () => {
  for (let waited = 0; waited < IDLE_MS; waited += 20) {
    if (transforming.waiting.length) return transforming.waiting.shift()
    await delay(20)
  }
  return null
}

const operations = {
  async produce({ topic, codec, values, keys }) {
    const producer = kafka.producer()
    await producer.connect()
    const messages = values.map((value, number) => ({ value, key: keys ? keys[number] : null, partition: 0 }))
    const answers = await producer.send({ topic, messages, compression: CODECS[codec] })
    await producer.disconnect()
    return answers.flatMap((each) => values.map((_, number) => Number(each.baseOffset) + number))
  },

  async consume({ topic, count, committed }) {
    const consumer = kafka.consumer({ groupId: `reader-of-${topic}-${count}`, readUncommitted: !committed })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    const read = []
    await consumer.run({
      eachMessage: async ({ partition, message }) =>
        read.push([partition, Number(message.offset), text(message.key), text(message.value)]),
    })
    for (let waited = 0; read.length < count && waited < CONSUME_TIMEOUT_MS; waited += 20) await delay(20)
    await consumer.disconnect()
    return read
  },

  async join({ group, topics, protocol, instance }) {
    if (protocol && protocol !== 'classic') return { notOffered: `join ${protocol}` }
    if (instance) return { notOffered: 'join as a static member' }
    const settings = { groupId: group, sessionTimeout: SESSION_TIMEOUT_MS, heartbeatInterval: SESSION_TIMEOUT_MS / 6 }
    member.consumer = kafka.consumer(settings)
    follow(member.consumer)
    await member.consumer.connect()
    await member.consumer.subscribe({ topics, fromBeginning: true })
    const eachMessage = async ({ partition, message }) =>
      member.records.push([partition, Number(message.offset), text(message.value)])
    await member.consumer.run({ eachMessage })
  },

  async poll({ for_ms }) {
    await delay(for_ms)
    const records = member.records
    member.records = []
    return { records, assignment: member.assignment }
  },

  async leave() {
    await member.consumer.disconnect()
  },

  async transform_start({ source, target, group, transactional_id }) {
    Object.assign(transforming, { group, target })
    const idempotent = { idempotent: true, maxInFlightRequests: 1, transactionalId: transactional_id }
    transforming.producer = kafka.producer(idempotent)
    await transforming.producer.connect()
    await (await transforming.producer.transaction()).abort() // the first transaction initializes the transactional id
    transforming.consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: TRANSFORM_SESSION_TIMEOUT_MS,
      heartbeatInterval: SESSION_TIMEOUT_MS / 6,
    })
    await transforming.consumer.connect()
    await transforming.consumer.subscribe({ topics: [source], fromBeginning: true })
    await transforming.consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  },

  async transform_once({ batch_max, hold, abort }) {
    const at = pausing(hold)
    const current = await next()
    if (!current) return 0
    const { batch, resolveOffset, done } = current
    const messages = batch.messages.slice(0, batch_max)
    const { topic, partition } = batch
    try {
      const transaction = await transforming.producer.transaction()
      await at('begun')
      const changed = messages.map(({ value }) => ({ value: `${value}'`, partition }))
      await transaction.send({ topic: transforming.target, messages: changed })
      await at('sent')
      const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString()
      const topics = [{ topic, partitions: [{ partition, offset }] }]
      await transaction.sendOffsets({ consumerGroupId: transforming.group, topics })
      await at('offsets')
      if (abort) {
        await transaction.abort()
        transforming.consumer.seek({ topic, partition, offset: messages[0].offset })
        return messages.length
      }
      await at('committing')
      await transaction.commit()
      resolveOffset(messages[messages.length - 1].offset)
      await at('committed')
      return messages.length
    } finally {
      done()
    }
  },

  async create_topic({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, configEntries }
    if (!(await (await admin()).createTopics({ topics: [wanted] }))) throw new Error('TOPIC_ALREADY_EXISTS')
  },

  async list_topics() {
    return (await (await admin()).listTopics()).sort()
  },

  async describe_topic({ topic }) {
    const { topics } = await (await admin()).fetchTopicMetadata({ topics: [topic] })
    return { partitions: topics[0].partitions.length }
  },

  async add_partitions({ topic, total }) {
    await (await admin()).createPartitions({ topicPartitions: [{ topic, count: total }] })
  },

  async delete_topic({ topic }) {
    await (await admin()).deleteTopics({ topics: [topic] })
  },

  async describe_configs({ topic }) {
    const asked = { includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] }
    const { resources } = await (await admin()).describeConfigs(asked)
    return Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, each.configValue]))
  },

  // Not incremental: this resets all other configurations.
  async alter_config({ topic, name, value }) {
    const configEntries = value === null ? [] : [{ name, value }]
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }]
    await (await admin()).alterConfigs({ validateOnly: false, resources })
  },

  async list_offsets({ topic }) {
    const all = await (await admin()).fetchTopicOffsets(topic)
    return Object.fromEntries(all.map((each) => [each.partition, [Number(each.low), Number(each.high)]]))
  },

  async delete_records({ topic, partition, before }) {
    await (await admin()).deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
  },

  async list_groups() {
    return (await (await admin()).listGroups()).groups.map((each) => each.groupId).sort()
  },

  async describe_group({ group }) {
    const { groups } = await (await admin()).describeGroups([group])
    return { state: groups[0].state.toUpperCase(), members: groups[0].members.length }
  },

  async group_offsets({ group, topic }) {
    const found = await (await admin()).fetchOffsets({ groupId: group, topics: [topic] })
    const partitions = found.flatMap((each) => each.partitions).filter((each) => Number(each.offset) >= 0)
    return Object.fromEntries(partitions.map((each) => [each.partition, Number(each.offset)]))
  },

  async set_group_offset({ group, topic, partition, offset }) {
    await (await admin()).setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(offset) }] })
  },

  async delete_group({ group }) {
    await (await admin()).deleteGroups([group])
  },
}

const answer = async ({ do: name, ...request }) => {
  if (!operations[name]) return { not_offered: name }
  try {
    const value = await operations[name](request)
    if (value && value.notOffered) return { not_offered: value.notOffered }
    return { ok: value === undefined ? null : value }
  } catch (error) {
    return { error: `${error.name}: ${error.type || ''} ${error.message}` }
  }
}

say({ hello: { client: 'KafkaJS', version, library: '', codecs: Object.keys(CODECS) } })
const lines = readline.createInterface({ input: process.stdin })
lines.on('line', async (line) => {
  const request = JSON.parse(line)
  if (request.do === 'go on') goOn()
  else say(await answer(request))
})
lines.on('close', () => process.exit(0))
