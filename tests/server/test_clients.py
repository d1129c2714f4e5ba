"""Programs that exist already, before rose-nano: OpenAI's client and the Agents SDK."""

import asyncio
import json
from typing import Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
)
from pydantic import BaseModel

MODEL = "rose-nano"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city."}},
            "required": ["city"],
        },
    },
}


def test_a_chat_of_two_turns_streams(nano):
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    content = reasoning = ""
    stream = nano.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, stream=True
    )
    for chunk in stream:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning", None) or ""
    assert "42" in content
    assert reasoning
    messages += [
        {"role": "assistant", "content": content, "reasoning": reasoning},
        {"role": "user", "content": "Now add 4 to that."},
    ]
    whole = nano.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    assert "46" in whole.choices[0].message.content
    assert whole.usage.completion_tokens_details.reasoning_tokens > 0


def test_a_loop_of_three_calls(nano):
    """Each city is asked for, called for, answered, and told."""
    weather = {"Paris": "sunny", "Rome": "rainy", "Oslo": "cloudy"}
    messages: list = []
    for city, state in weather.items():
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        message = _ask(nano, messages).message
        [call] = message.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": city}
        messages += [
            message.model_dump(),
            {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"weather": state})},
        ]
        answer = _ask(nano, messages)
        assert answer.finish_reason == "stop"
        assert state in answer.message.content
        messages.append(answer.message.model_dump())


def _ask(nano: openai.OpenAI, messages: list):
    answer = nano.chat.completions.create(
        model=MODEL, messages=messages, tools=[WEATHER], temperature=0
    )
    return answer.choices[0]


class Person(BaseModel):
    """What the model is to fill in."""

    name: str
    age: int
    mood: Literal["happy", "sad"]


def test_structured_output_is_parsed_into_a_pydantic_model(nano):
    answer = nano.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Ann is 34 years old and happy. Fill the form."}],
        response_format=Person,
        temperature=0,
    )
    person = answer.choices[0].message.parsed
    assert isinstance(person, Person)
    assert answer.choices[0].finish_reason == "stop"


def test_structured_output_streams(nano):
    with nano.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": "Ann is 34 years old and happy. Fill the form."}],
        response_format=Person,
        temperature=0,
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert isinstance(final.choices[0].message.parsed, Person)


def test_a_required_call_is_made_though_none_is_needed(nano):
    answer = nano.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the weather in Rome?"}],
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
    )
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"]


def test_the_agents_sdk_runs_a_function_tool(nano_url):
    asked: list[str] = []

    @function_tool
    def get_weather(city: str) -> str:
        """Current weather of a city."""
        asked.append(city)
        return '{"weather": "sunny"}'

    async def run() -> str:
        async with openai.AsyncOpenAI(base_url=nano_url, api_key="none") as client:
            agent = Agent(
                name="nano",
                instructions="Answer in plain English.",
                model=OpenAIChatCompletionsModel(model=MODEL, openai_client=client),
                model_settings=ModelSettings(temperature=0),
                tools=[get_weather],
            )
            config = RunConfig(tracing_disabled=True)
            result = await Runner.run(agent, "What is the weather in Paris?", run_config=config)
            return result.final_output

    answer = asyncio.run(run())
    assert asked == ["Paris"]
    assert "sunny" in answer
